// What surrounds every page: the bar, the navigation, the place for messages.

import { html, useEffect, useState } from "../core/view.js";
import { link } from "../core/router.js";
import { theme } from "../core/theme.js";
import { useSession } from "../core/session.js";

/** Pages of the navigation: place, name, key after "g", marks that belong to it. */
export const PLACES = [
  ["/", "Overview", "o"],
  ["/transactions", "Transactions", "t"],
  ["/pipelines", "Pipelines", "p"],
  ["/node-groups", "Node groups", "n"],
  ["/streams", "Streams", "s"],
  ["/channels", "Channels", "c"],
  ["/webhooks", "Webhooks", "w"],
  ["/data", "Data pipeline", "d"],
  ["/server", "Server", "v"],
];

export function Frame({ place, children }) {
  const [isOpen, setOpen] = useState(false);
  return html`
    <a class="skip" href="#content" onClick=${skip}>Skip to the content</a>
    <header class="bar">
      <button class="menu" aria-label="Menu" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>☰</button>
      <a class="brand" href="#/"><img src="icon.svg" alt="" width="22" height="22" />Penstock</a>
      <span class="fill"></span>
      <${Who} />
      <${ThemeButton} />
    </header>
    <nav class=${isOpen ? "side open" : "side"} aria-label="Pages" onClick=${() => setOpen(false)}>
      ${PLACES.map(
        ([target, name, key]) => html`
          <a href=${link(target)} aria-current=${isHere(place, target) ? "page" : undefined} title="g ${key}">${name}</a>
        `,
      )}
      <a class="outside" href="../v1/docs">HTTP API ↗</a>
    </nav>
    <main id="content" tabindex="-1">${children}</main>
  `;
}

const isHere = (place, target) => place === target || (target !== "/" && place.startsWith(`${target}/`));

function skip(event) {
  event.preventDefault(); // the address belongs to the router
  document.getElementById("content").focus();
}

function Who() {
  const { session, signOut } = useSession();
  if (!session) return null;
  const role = session.may.operate ? "operator" : "read-only";
  return html`
    <span class="who" title="What you may do">${session.name} <span class="mark">${role}</span></span>
    <button class="small" onClick=${signOut}>Sign out</button>
  `;
}

function ThemeButton() {
  const [name, setName] = useState(theme.get());
  return html`<button class="small" aria-label="Theme: ${name}" onClick=${() => setName(theme.next())}>
    ${{ auto: "◐", light: "☀", dark: "☾" }[name]}
  </button>`;
}

/** The head of a page: its title, what it is of, buttons. */
export function Head({ title, crumbs = [], children }) {
  useEffect(() => {
    document.title = `${title} · Penstock`;
  }, [title]);
  return html`
    <div class="head">
      <div>
        ${crumbs.length > 0 &&
        html`<p class="crumbs">${crumbs.map(([name, target]) => html`<a href=${link(target)}>${name}</a> / `)}</p>`}
        <h1>${title}</h1>
      </div>
      <div class="buttons">${children}</div>
    </div>
  `;
}
