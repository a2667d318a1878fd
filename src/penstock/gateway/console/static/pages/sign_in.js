// Before anything else, where a credential is needed: asks for a token.

import { html, useState } from "../core/view.js";

export function SignIn({ session, error, onToken }) {
  const [text, setText] = useState("");
  const submit = (event) => {
    event.preventDefault();
    onToken(text.trim());
  };
  const reason = error?.message ?? (session?.kind === "anonymous" ? "" : "This token may not look around: it needs the scope observe.");
  return html`<main class="sign-in">
    <img src="icon.svg" alt="" width="48" height="48" />
    <h1>Penstock</h1>
    <form onSubmit=${submit}>
      <label class="field"><span>Token</span>
        <input type="password" autocomplete="off" required autofocus value=${text} onInput=${(event) => setText(event.target.value)} />
      </label>
      <button class="main">Sign in</button>
    </form>
    ${reason && html`<p class="failure" role="alert">${reason}</p>`}
    <p class="quiet">An operator makes one: <code>POST /v1/tokens</code> with the role <code>viewer</code> or <code>operator</code>. It stays in this tab.</p>
  </main>`;
}
