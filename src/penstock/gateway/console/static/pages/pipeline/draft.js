// The draft of a pipeline: JSON in an editor, a drawing of it, and what the gateway finds wrong, each at its line.
//
// What is typed stays in this page until it is saved. A commit saves first, so that what one sees is what one commits.

import { html, useEffect, useRef, useState } from "../../core/view.js";
import { api, path } from "../../core/api.js";
import { useLoad } from "../../core/loading.js";
import { ActionButton } from "../../parts/dialogs.js";
import { Empty, Loaded } from "../../parts/messages.js";
import { Mark } from "../../parts/small.js";
import { Drawing } from "./drawing.js";
import { lineOf, placeOf, placesIn } from "./json_places.js";

const TEMPLATE = { steps: [{ type: "delay", ms: 1000 }], node_group: "default" };

export function Draft({ state, isOperator, after, onCommitted }) {
  const target = path("/v1/pipelines/{}", state.name);
  const saved = useLoad(() => (state.has_draft ? api.get(`${target}/draft`) : null), [state.name, state.has_draft]);
  if (saved.isLoading || saved.error) return html`<${Loaded} of=${saved}>${() => null}<//>`;
  if (!state.has_draft && !isOperator) return html`<${Empty} title="It has no draft">An operator writes one, or clones a version.<//>`;
  return html`<${Editor} state=${state} target=${target} saved=${saved.data} isOperator=${isOperator} after=${after} onCommitted=${onCommitted} />`;
}

const written = (definition) => JSON.stringify(definition, null, 2);

function Editor({ state, target, saved, isOperator, after, onCommitted }) {
  const first = useRef(written(saved ?? { name: state.name, ...TEMPLATE }));
  const [text, setText] = useState(first.current);
  const [wrong, setWrong] = useState([]);
  const area = useRef(null);
  const { places, error } = placesIn(text);
  const problems = [...(error ? [{ name: "definition", detail: error.message, at: error.at }] : []), ...wrong]
    .map((each) => ({ ...each, line: lineOf(text, each.at ?? placeOf(places, each.name)) }));
  const isChanged = text !== first.current || !saved;

  const save = async () => {
    try {
      const definition = JSON.parse(text);
      await api.put(`${target}/draft`, definition);
      first.current = text;
      setWrong([]);
    } catch (failure) {
      setWrong(failure.errors ?? []);
      throw failure;
    }
  };
  const show = (line) => {
    const at = text.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    area.current.focus();
    area.current.setSelectionRange(at, at + (text.split("\n")[line - 1]?.length ?? 0));
  };
  return html`
    ${isOperator && html`<div class="buttons">
      <${ActionButton} label="Save draft" className="main" isDisabled=${Boolean(error)} act=${save} done="The draft is saved." after=${after} />
      <${ActionButton} label="Commit" isDisabled=${Boolean(error)} after=${async () => (await after(), onCommitted())}
        question=${{ title: "Make a version of the draft", fields: [
          { name: "comment", label: "Comment", isOptional: true },
          { name: "activate", label: "Start this version from now on", kind: "choice", choices: ["yes", "no"], value: "no" }] }}
        act=${async ({ comment, activate }) => {
          if (isChanged) await save();
          return api.post(`${target}/commit`, { comment, activate: activate === "yes" });
        }}
        done=${({ version }) => `It is version ${version.slice(0, 8)}.`} />
      ${state.has_draft && html`<${ActionButton} label="Discard" isDangerous after=${after}
        question=${{ title: "Discard the draft?", text: "What it says is gone; versions stay." }}
        act=${() => api.delete(`${target}/draft`)} done="The draft is gone." />`}
      ${isChanged && html`<${Mark} word="not saved" kind="warn" />`}
    </div>`}
    <${Text} area=${area} text=${text} isReadOnly=${!isOperator} bad=${new Set(problems.map((each) => each.line))}
      onInput=${(value) => (setText(value), setWrong([]))} />
    ${problems.length > 0 && html`<ul class="problems" aria-label="Problems" role="alert">
      ${problems.map((each) => html`<li><button class="small" onClick=${() => show(each.line)}>line ${each.line}</button>
        <code>${each.name}</code> ${each.detail}</li>`)}
    </ul>`}
    ${!error && html`<${Preview} text=${text} />`}
  `;
}

/** A text area with numbers of lines; those with problems are marked. */
function Text({ area, text, bad, isReadOnly, onInput }) {
  const gutter = useRef(null);
  const follow = () => (gutter.current.scrollTop = area.current.scrollTop);
  useEffect(follow, [text]);
  return html`<div class="editor">
    <div class="gutter" ref=${gutter} aria-hidden="true">
      ${text.split("\n").map((_, at) => html`<div class=${bad.has(at + 1) ? "bad" : ""}>${at + 1}</div>`)}
    </div>
    <textarea ref=${area} aria-label="Definition" aria-invalid=${bad.size > 0} spellcheck="false" wrap="off" readonly=${isReadOnly} value=${text}
      onInput=${(event) => onInput(event.target.value)} onScroll=${follow}></textarea>
  </div>`;
}

function Preview({ text }) {
  const definition = JSON.parse(text);
  if (!Array.isArray(definition?.steps)) return null;
  return html`<h2>Drawing</h2><${Drawing} definition=${definition} />`;
}
