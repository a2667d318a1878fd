// The keyboard: "g" and a letter goes to a page, "/" to its search field, "?" tells the keys.

import { useEffect } from "../core/view.js";
import { go } from "../core/router.js";
import { ask } from "./dialogs.js";
import { PLACES } from "./frame.js";

const WAITS_MS = 1_500;

export function useKeys() {
  useEffect(() => {
    let since = 0;
    const listen = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
      if (event.key === "g") {
        since = Date.now();
      } else if (Date.now() - since < WAITS_MS) {
        since = 0;
        const found = PLACES.find(([, , key]) => key === event.key);
        if (found) go(found[0]);
      } else if (event.key === "/") {
        event.preventDefault();
        document.querySelector("main input[type=search]")?.focus();
      } else if (event.key === "?") {
        const lines = PLACES.map(([, name, key]) => `g ${key}: ${name}`);
        ask({ title: "Keys", text: [...lines, "/: search", "?: this list"].join(" · "), action: "Good" });
      }
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, []);
}
