// The console: finds out who looks, then shows the page of the address. Pages know the gateway's API and `parts/`,
// never one another.

import { html, render, useCallback, useEffect, useState } from "./core/view.js";
import { api, token } from "./core/api.js";
import { match, useHash } from "./core/router.js";
import { SessionContext } from "./core/session.js";
import { theme } from "./core/theme.js";
import { Dialogs } from "./parts/dialogs.js";
import { Frame } from "./parts/frame.js";
import { useKeys } from "./parts/keys.js";
import { Empty, Messages } from "./parts/messages.js";
import { SignIn } from "./pages/sign_in.js";
import { PAGES } from "./pages/index.js";

function App() {
  const hash = useHash();
  const [session, setSession] = useState(null);
  const [error, setError] = useState(null);
  useKeys();

  const refresh = useCallback(async () => {
    try {
      setSession(await api.get("/v1/session"));
      setError(null);
    } catch (failure) {
      setSession(null);
      setError(failure);
    }
  }, []);
  useEffect(() => void refresh(), []);

  const signOut = async () => {
    token.set("");
    await refresh();
  };
  const can = (action) => Boolean(session?.may[action]);

  const route = match(PAGES, hash);
  return html`
    <${SessionContext.Provider} value=${{ session, can, signOut }}>
      ${session && session.may.observe
        ? html`<${Frame} place=${route.place}><${Page} key=${route.place} route=${route} /><//>`
        : session || error
          ? html`<${SignIn} session=${session} error=${error} onToken=${(text) => (token.set(text), refresh())} />`
          : null}
      <${Messages} /><${Dialogs} />
    <//>
  `;
}

function Page({ route }) {
  if (!route.page) {
    return html`<${Empty} title="There is no such page">The <a href="#/">overview</a> leads everywhere.<//>`;
  }
  return html`<${route.page} route=${route} />`;
}

/** A link that whoever started the server was shown: the credential is taken from it, and out of the address. */
function takeToken() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return;
  token.set(decodeURIComponent(found[1]));
  history.replaceState(null, "", "#/");
}

takeToken();
theme.apply();
render(html`<${App} />`, document.getElementById("root"));
