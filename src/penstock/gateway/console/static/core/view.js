// What pages are written with: components of Preact, marked up by htm. The only file that names them.
//
//     html`<p class="quiet">${text}</p>`
//     html`<${Table} rows=${rows} columns=${columns} />`

import { Fragment, createContext, h, render } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export { useCallback, useContext, useEffect, useMemo, useRef, useState } from "../vendor/hooks.js";
export { Fragment, createContext, render };
export const html = htm.bind(h);
