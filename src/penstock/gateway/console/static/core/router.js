// Addresses of pages: what follows `#`. Each can be shared, bookmarked and gone back to.
//
//     #/transactions/tx-1?tab=trail     ->  { page, params: { id: "tx-1" }, query: { tab: "trail" } }
//
// `link` makes one, `go` moves there, `useQuery` keeps a page's filters in it.

import { useEffect, useState } from "./view.js";

export function link(place, query = {}) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "" && value !== false) found.set(name, value);
  }
  const text = found.toString();
  return `#${place}${text ? `?${text}` : ""}`;
}

/** A place whose `{}` are replaced by percent-encoded values. */
export { path as place } from "./api.js";

export function go(place, query) {
  location.hash = link(place, query);
}

/** `table`: [["/transactions/:id", page], …]; a page is a component. */
export function match(table, hash) {
  const [place, text = ""] = (hash.replace(/^#/, "") || "/").split("?");
  const query = Object.fromEntries(new URLSearchParams(text));
  for (const [template, page] of table) {
    const names = [];
    const pattern = template.replace(/:(\w+)/g, (_, name) => (names.push(name), "([^/]+)"));
    const found = new RegExp(`^${pattern}/?$`).exec(place);
    if (found) {
      const params = Object.fromEntries(names.map((name, at) => [name, decodeURIComponent(found[at + 1])]));
      return { page, params, query, place };
    }
  }
  return { page: null, params: {}, query, place };
}

export function useHash() {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const listen = () => setHash(location.hash);
    addEventListener("hashchange", listen);
    return () => removeEventListener("hashchange", listen);
  }, []);
  return hash;
}

/** The query of this page, and a way to change parts of it (null takes a part away). */
export function useQuery(route) {
  const change = (parts) => {
    const merged = { ...route.query, ...parts };
    history.replaceState(null, "", link(route.place, merged));
    dispatchEvent(new HashChangeEvent("hashchange"));
  };
  return [route.query, change];
}
