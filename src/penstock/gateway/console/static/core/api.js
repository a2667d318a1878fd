// The HTTP API, as the console calls it. Everything goes through `call`; a refusal becomes an ApiError whose
// message is the sentence of the gateway.
//
//     await api.get("/v1/transactions", { state: "sleeping", limit: 50 })
//     await api.post(path("/v1/transactions/{}/cancel", id), { reason: "…" })
//
// The credential lives in this tab alone (sessionStorage), and leaves it in no address.

const TOKEN = "penstock-token";

/** The gateway's root, whatever prefix it has: the console lies directly below it. */
export const ROOT = new URL("..", document.baseURI);

export class ApiError extends Error {
  constructor(status, code, detail, errors = []) {
    super(detail);
    this.status = status;
    this.code = code;
    this.errors = errors;
  }

  /** Whether another credential would help. */
  get isRefused() {
    return this.status === 401 || this.status === 403;
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN) ?? "",
  set: (value) => (value ? sessionStorage.setItem(TOKEN, value) : sessionStorage.removeItem(TOKEN)),
};

/** A path whose `{}` are replaced by percent-encoded values. */
export function path(template, ...values) {
  let at = 0;
  return template.replace(/\{\}/g, () => encodeURIComponent(values[at++]));
}

export function address(place, query = {}) {
  const url = new URL(place.replace(/^\//, ""), ROOT);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

export function headers(more = {}) {
  const bearer = token.get();
  return bearer ? { ...more, authorization: `Bearer ${bearer}` } : more;
}

/** Why a request was not served, as the gateway words it. */
export async function refusalOf(response) {
  try {
    const problem = await response.json();
    return new ApiError(
      response.status, problem.code ?? "", problem.detail ?? problem.title ?? problem.error ?? response.statusText,
      problem.errors,
    );
  } catch {
    return new ApiError(response.status, "", `the gateway answered ${response.status} ${response.statusText}`);
  }
}

async function call(method, place, { query, body, signal, more } = {}) {
  const options = { method, headers: headers(more), signal };
  if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(address(place, query), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "the gateway does not answer; is it running?");
  }
  if (!response.ok) throw await refusalOf(response);
  const text = await response.text();
  if (response.headers.get("content-type")?.startsWith("text/")) return text;
  return text ? JSON.parse(text) : null;
}

export const api = {
  get: (place, query, options) => call("GET", place, { query, ...options }),
  post: (place, body = {}, options) => call("POST", place, { body, ...options }),
  put: (place, body = {}, options) => call("PUT", place, { body, ...options }),
  delete: (place, options) => call("DELETE", place, options),
};
