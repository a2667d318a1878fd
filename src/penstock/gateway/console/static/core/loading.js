// Values that come from the gateway: loaded when a page opens, again when what they depend on changes, and every so
// often while somebody looks.
//
//     const { data, error, reload } = useLoad(() => api.get("/v1/workers"), [], { everyMs: 5_000 });
//
// Old data stays while new data is on its way, and when it cannot be had: `error` then tells why. When dependencies change it
// goes at once, unless `isKept` says that it may stay until the new one is there (pages of one table).

import { useCallback, useEffect, useRef, useState } from "./view.js";
import { follow } from "./events.js";

export function useLoad(load, dependencies = [], { everyMs = 0, isKept = false } = {}) {
  const [state, setState] = useState({ data: null, error: null, isLoading: true });
  const turn = useRef(0);
  const latest = useRef(load);
  latest.current = load;

  const reload = useCallback(async () => {
    const mine = ++turn.current;
    try {
      const data = await latest.current();
      if (mine === turn.current) setState({ data, error: null, isLoading: false });
    } catch (error) {
      if (mine === turn.current) setState((old) => ({ data: old.data, error, isLoading: false }));
    }
  }, []);

  useEffect(() => {
    setState((old) => ({ data: isKept ? old.data : null, error: null, isLoading: true }));
    reload();
    return () => void ++turn.current;
  }, dependencies);

  useEffect(() => {
    if (!everyMs) return undefined;
    const timer = setInterval(() => document.hidden || reload(), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);

  return { ...state, reload };
}

/** Events of a stream while the page is open: what `handlers` makes of them, and how the line is. */
export function useEvents(place, handlers, dependencies = [], query = {}) {
  const [state, setState] = useState({ line: "connecting", end: null });
  const latest = useRef(handlers);
  latest.current = handlers;
  useEffect(() => {
    if (!place) return undefined;
    setState({ line: "connecting", end: null });
    const relay = { line: (line, end = null) => setState({ line, end }) };
    for (const name of Object.keys(latest.current)) relay[name] = (data, id) => latest.current[name](data, id);
    return follow(place, relay, query);
  }, [place, ...dependencies]);
  return state;
}
