// Questions: every dangerous button asks first, and some need words.
//
//     if (await ask({ title: "Cancel tx-1?", text: "…", action: "Cancel it", isDangerous: true })) …
//     const values = await ask({ title: "Set a switch", fields: [{ name: "switch" }, { name: "value" }], action: "Set" });
//
// Answers null if it was called off, otherwise an object of the fields' values.
// A field: { name, label, value, kind: "text" | "number" | "area" | "choice", choices, isOptional, hint }.
// With fields and `act`, it is done while the dialog is open: what is refused can be mended there. `cancel` names the other
// button; null: there is none.
// `ActionButton` does it all: asks, calls, tells how it went.

import { html, useEffect, useRef, useState } from "../core/view.js";
import { tell } from "./messages.js";

let open = null;

export function ask(question) {
  return new Promise((resolve) => open?.({ ...question, resolve }));
}

export function Dialogs() {
  const [question, setQuestion] = useState(null);
  useEffect(() => {
    open = setQuestion;
    return () => void (open = null);
  }, []);
  if (!question) return null;
  const answer = (value) => {
    setQuestion(null);
    question.resolve(value);
  };
  return html`<${Dialog} key=${question} question=${question} answer=${answer} />`;
}

function Dialog({ question, answer }) {
  const element = useRef(null);
  useEffect(() => {
    element.current.showModal();
  }, []);
  const [refusal, setRefusal] = useState("");
  const [isBusy, setBusy] = useState(false);
  const { title, text, fields = [], action = "OK", isDangerous = false, act, cancel = "Keep it as it is" } = question;
  const submit = async (event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(event.target));
    if (act && fields.length > 0) {
      setBusy(true);
      try {
        await act(values);
      } catch (error) {
        setRefusal(error.message);
        setBusy(false);
        return;
      }
    }
    answer(values);
  };
  return html`
    <dialog ref=${element} aria-label=${title} onCancel=${() => answer(null)}>
      <form onSubmit=${submit}>
        <h2>${title}</h2>
        ${text && html`<p>${text}</p>`}
        ${fields.map((field) => html`<${Field} field=${field} />`)}
        ${refusal && html`<p class="failure" role="alert" ref=${(alert) => alert?.scrollIntoView({ block: "nearest" })}>${refusal}</p>`}
        <div class="buttons">
          ${cancel && html`<button type="button" onClick=${() => answer(null)}>${cancel}</button>`}
          <button class=${isDangerous ? "main danger" : "main"} disabled=${isBusy} autofocus=${fields.length === 0}>${action}</button>
        </div>
      </form>
    </dialog>
  `;
}

export function Field({ field }) {
  const { name, label = name, value = "", kind = "text", choices = [], isOptional = false, hint } = field;
  const common = { name, required: !isOptional };
  return html`<label class="field">
    <span>${label}${isOptional && html` <small class="quiet">optional</small>`}</span>
    ${kind === "area"
      ? html`<textarea rows="6" spellcheck="false" ...${common}>${value}</textarea>`
      : kind === "choice"
        ? html`<select ...${common}>${choices.map((each) => html`<option selected=${each === value}>${each}</option>`)}</select>`
        : html`<input type=${kind} defaultValue=${value} step="any" autocomplete="off" ...${common} />`}
    ${hint && html`<small class="quiet">${hint}</small>`}
  </label>`;
}

/** `act(values)` does it; `done` is said afterwards, `after(result)` called. Without `question` nothing is asked; one that
 * depends on how things are now is a function, which may take its time. */
export function ActionButton({ label, question, act, done, after, isDangerous = false, isDisabled = false, title, className = "" }) {
  const [isBusy, setBusy] = useState(false);
  const press = async () => {
    let result;
    let isDone = false;
    const attempt = async (values) => {
      setBusy(true);
      result = await act(values);
      isDone = true;
    };
    try {
      const asked = typeof question === "function" ? await question() : question;
      const values = asked ? await ask({ action: label, isDangerous, ...asked, act: attempt }) : {};
      if (values === null) return;
      if (!isDone) await attempt(values);
      tell(typeof done === "function" ? done(result, values) : (done ?? `${label}: done.`));
      await after?.(result);
    } catch (error) {
      tell(error.message, "bad");
    } finally {
      setBusy(false);
    }
  };
  return html`<button class=${`${className} ${isDangerous ? "danger" : ""}`} disabled=${isDisabled || isBusy} title=${title}
    aria-busy=${isBusy} onClick=${press}>${label}</button>`;
}
