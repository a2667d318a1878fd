// Commands that an empty page offers: they name the store that is looked at, so that they can be pasted as they are.
//
//     const store = useStoreName();          // "/srv/shop.pen", "redis://localhost:6379", …
//     html`<${Commands} of=${[["A sample shop", "penstock demo"], …]} />`

import { html } from "../core/view.js";
import { api } from "../core/api.js";
import { useLoad } from "../core/loading.js";
import { Copied } from "./small.js";

const SOMEWHERE = "./shop.pen";
const PLAIN = /^[\w@%+=:,./-]+$/;

/** How a command names the gateway's store; an example until it is known, and where it may not be told. */
export function useStoreName() {
  const { data } = useLoad(() => api.get("/v1/server"));
  return quoted(data?.store.path ?? data?.store.url ?? SOMEWHERE);
}

/** As a shell takes it: in quotes if it must be. */
const quoted = (word) => (PLAIN.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

export function Commands({ of }) {
  return html`<dl class="commands">
    ${of.map(([purpose, command]) => html`<div><dt>${purpose}</dt><dd><${Copied} text=${command} /></dd></div>`)}
  </dl>`;
}
