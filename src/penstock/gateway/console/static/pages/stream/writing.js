// Write one test message: JSON that is checked, any text, or a tombstone.

import { html, useState } from "../../core/view.js";
import { api, path } from "../../core/api.js";
import { Choice } from "../../parts/small.js";
import { Failure, tell } from "../../parts/messages.js";

const KINDS = [["json", "JSON"], ["text", "Text"], ["tombstone", "Tombstone"]];

export function Writing({ name, onWritten }) {
  const [kind, setKind] = useState("json");
  const [tag, setTag] = useState("");
  const [text, setText] = useState('{"hello": "world"}');
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    try {
      if (kind === "json") checkJson(text);
      const data = kind === "tombstone" ? null : text;
      const { last } = await api.post(path("/v1/streams/{}", name), [{ tag, data }]);
      setError(null);
      tell(`Written at offset ${last}.`);
      await onWritten();
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<details class="card drawer">
    <summary>Write a test message</summary>
    <form class="sheet" onSubmit=${submit}>
      <${Choice} label="Kind of message" of=${KINDS} value=${kind} onChange=${setKind} />
      <label class="field"><span>Tag <small class="quiet">optional</small></span>
        <input value=${tag} required=${kind === "tombstone"} onInput=${(event) => setTag(event.target.value)} /></label>
      ${kind === "tombstone"
        ? html`<p class="quiet">Says that its tag is over: compaction then forgets the tag's messages.</p>`
        : html`<label class="field"><span>Data</span>
            <textarea rows="4" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>`}
      <${Failure} error=${error} />
      <div class="buttons"><button class="main">Write</button></div>
    </form>
  </details>`;
}

function checkJson(text) {
  try {
    JSON.parse(text);
  } catch (error) {
    throw new Error(`This is not JSON: ${error.message}. Choose Text to write it as it is.`);
  }
}
