// One pipeline: its drawing, its versions, its draft, and how two of them differ; what is started, paused, limited.

import { html } from "../core/view.js";
import { api, path } from "../core/api.js";
import { duration, moment } from "../core/format.js";
import { useLoad } from "../core/loading.js";
import { go, link, useQuery } from "../core/router.js";
import { useSession } from "../core/session.js";
import { ActionButton } from "../parts/dialogs.js";
import { Head } from "../parts/frame.js";
import { Empty, Failure, Loaded } from "../parts/messages.js";
import { Json, Mark, Tabs } from "../parts/small.js";
import { Facts } from "../parts/table.js";
import { LimitButtons, limitText, useLimits } from "./limits/limit.js";
import { Difference } from "./pipeline/difference.js";
import { Draft } from "./pipeline/draft.js";
import { Drawing } from "./pipeline/drawing.js";
import { Versions } from "./pipeline/versions.js";

const REFRESH_MS = 5_000;

export function Pipeline({ route }) {
  const name = route.params.name;
  const found = useLoad(() => look(name), [name], { everyMs: REFRESH_MS });
  return html`<${Loaded} of=${found}>${(state) => html`<${Shown} state=${state} route=${route} reload=${found.reload} />`}<//>`;
}

/** One that is not there yet has no versions: whoever may write begins with a draft. */
async function look(name) {
  try {
    return await api.get(path("/v1/pipelines/{}", name));
  } catch (error) {
    if (error.status !== 404) throw error;
    return { name, active: null, has_draft: false, versions: [], isNew: true };
  }
}

function Shown({ state, route, reload }) {
  const [query, change] = useQuery(route);
  const { can } = useSession();
  const limits = useLimits("pipelines");
  const { name } = state;
  const limit = limits.of(name);
  const isOperator = can("operate");
  const tab = query.tab ?? (state.isNew ? "draft" : "drawing");
  const target = path("/v1/pipelines/{}", name);
  const after = () => Promise.all([reload(), limits.reload()]);
  const tabs = [["drawing", "Drawing"], ["versions", `Versions (${state.versions.length})`], ["draft", "Draft"], ["changes", "Changes"]];
  return html`
    <${Head} title=${name} crumbs=${[["Pipelines", "/pipelines"]]}>
      <a href=${link("/transactions", { tab: "all", pipeline: name })}>Transactions</a>
      ${isOperator && !state.isNew && html`
        <${LimitButtons} kind="pipelines" name=${name} limit=${limit} after=${after} />
        ${state.active && html`<${ActionButton} label="Deactivate" isDangerous after=${after}
          question=${{ title: `Deactivate ${name}?`, text: "It cannot be started any more until a version is active. What runs goes on." }}
          act=${() => api.post(`${target}/deactivate`)} done="${name} cannot be started any more." />`}`}
    <//>
    <p class="where">
      ${state.active
        ? html`<${Mark} word="active" /> version <code>${state.active.slice(0, 8)}</code>`
        : html`<${Mark} word="not active" kind="warn" /> nobody can start it`}
      ${state.has_draft && html` <${Mark} word="draft" kind="busy" />`}
      ${limit.is_paused && html` <${Mark} word="paused" /> nothing more of it begins`}
      ${limitText(limit) && html` <span class="quiet">limits: ${limitText(limit)}</span>`}
    </p>
    <${Tabs} label="Parts" of=${tabs} value=${tab} placeOf=${(each) => link(route.place, { tab: each })} />
    ${tab === "versions"
      ? html`<${Versions} state=${state} place=${route.place} after=${isOperator ? after : null} />`
      : tab === "draft"
        ? html`<${Draft} key=${`${name} ${state.has_draft}`} state=${state} isOperator=${isOperator} after=${after}
            onCommitted=${() => go(route.place, { tab: "versions" })} />`
        : tab === "changes"
          ? html`<${Difference} state=${state} query=${query} change=${change} />`
          : html`<${Definition} state=${state} version=${query.version} />`}
  `;
}

/** A version as a drawing, with its options; the active one unless another is asked for. */
function Definition({ state, version }) {
  const chosen = version ?? state.active ?? state.versions.at(-1)?.version;
  const found = useLoad(() => (chosen ? api.get(path("/v1/pipelines/{}/versions/{}", state.name, chosen)) : null), [state.name, chosen]);
  if (!chosen) return html`<${Empty} title="It has no version yet">Commit its draft: then it can be drawn, activated and started.<//>`;
  if (!found.data) return html`<${Loaded} of=${found}>${() => null}<//>`;
  const { data } = found;
  const about = state.versions.find((each) => each.version === chosen);
  return html`<${Failure} error=${found.error} />
    ${data.description && html`<p>${data.description}</p>`}
    <${Facts} items=${[
      ["Version", html`<code>${chosen}</code>${chosen === state.active ? "" : html` <${Mark} word="not active" kind="warn" />`}`],
      ["Committed", about?.committed_ms && moment(about.committed_ms)],
      ["Node group", data.node_group ?? "default"],
      ["Deadline", data.deadline_ms && duration(data.deadline_ms)],
      ["Priority", data.priority],
      ["Attempts of steps without a policy", data.retry && String(data.retry.limit ?? 3)],
      ["Input", data.input && Object.keys(data.input.fields ?? {}).join(", ")],
      ["Who starts it", data.is_startable === false ? "other pipelines only" : null],
    ]} />
    <${Drawing} definition=${data} />
    <h2>Definition</h2><${Json} label="Definition" value=${data} />`;
}
