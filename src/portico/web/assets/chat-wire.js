// A site as the chat reaches it: NLWeb for questions, operations for what can be done. A client like any other.

import { json, Refusal, retryAfter, sse } from "./dom.js";

const VERSION = "0.55";

export class Wire {
  #operations = null;

  /** `chat` is where the site has its chat. */
  constructor(origin, key = () => null, chat = "/chat") {
    Object.assign(this, { origin, key, chat });
  }

  #send(
    path,
    body,
    { method = body === undefined ? "GET" : "POST", signal, accept = "application/json", headers = {} } = {},
  ) {
    const key = this.key();
    return fetch(this.origin + path, {
      method,
      signal,
      credentials: "omit",
      referrerPolicy: "no-referrer",
      headers: {
        accept,
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...(key ? { authorization: `Bearer ${key}` } : {}),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  }

  /** Asks, and tells of each event as it arrives: `onEvent(name, data)`. */
  async ask(asked, onEvent, signal) {
    const response = await this.#send("/ask", requestOf(asked), { signal, accept: "text/event-stream" });
    const isStream = (response.headers.get("content-type") ?? "").startsWith("text/event-stream");
    if (response.ok && isStream) return sse(response, ({ event, data }) => onEvent(event, JSON.parse(data)), signal);
    this.#whole(response, await read(response), onEvent);
  }

  /** Looks at a promise, or cancels it; tells of what came of it as of any answer. */
  async settle(token, action, onEvent, signal) {
    const asked = { promise_token: token, action, meta: { version: VERSION } };
    const response = await this.#send("/await", asked, { signal });
    this.#whole(response, await read(response), onEvent);
  }

  // An answer in one piece, told as if it had come in parts.
  #whole(response, body, onEvent) {
    const meta = body?._meta;
    if (!meta) throw new Refusal(response.status, body, retryAfter(response));
    onEvent("start", body);
    (body.results ?? []).forEach((item, index) => onEvent("result", { index, item }));
    if (body.error)
      onEvent("error", {
        ...body,
        retryAfter: body.error.retry_after ?? retryAfter(response),
        status: response.status,
      });
    onEvent("complete", body);
  }

  /** Every operation that the caller may see, by name. Asked for once. */
  async operations() {
    this.#operations ??= this.#send("/operations")
      .then(json)
      .then(({ operations }) => new Map(operations.map((each) => [each.name, each])));
    try {
      return await this.#operations;
    } catch (error) {
      this.#operations = null;
      throw error;
    }
  }

  /** Somebody else asks from now on: what may be seen is asked for again. */
  forget() {
    this.#operations = null;
  }

  /** Runs an operation: {result} or {task}. A repeat with the same key does nothing twice. */
  async run(name, params, key) {
    const path = `/operations/${encodeURIComponent(name)}`;
    return json(await this.#send(path, params, { headers: { "idempotency-key": key } }));
  }

  async task(id, signal) {
    return (await json(await this.#send(`/tasks/${encodeURIComponent(id)}`, undefined, { signal }))).task;
  }

  async cancelTask(id) {
    return json(await this.#send(`/tasks/${encodeURIComponent(id)}`, undefined, { method: "DELETE" }));
  }

  async feedback(opinion) {
    return json(await this.#send(`${this.chat}/feedback`, opinion));
  }
}

async function read(response) {
  try {
    return await response.json();
  } catch {
    throw new Refusal(response.status, null, retryAfter(response));
  }
}

function requestOf({ text, collection, mode, language, session, previous, answers, start, linked }) {
  const context = { ...(answers ? { answers } : {}), ...(!session && previous?.length ? { prev: previous } : {}) };
  return {
    query: { text, ...(collection ? { site: collection } : {}) },
    ...(Object.keys(context).length ? { context } : {}),
    prefer: {
      streaming: true,
      mode: MODES[mode] ?? MODES.summarize,
      portico_text: true, // the text as it is written; other sites send it whole
      ...(linked ? { portico_act: false } : {}),
      ...(language ? { "accept-language": language } : {}),
    },
    meta: {
      version: VERSION,
      ...(session ? { session_context: session } : {}),
      ...(start ? { start_num: start } : {}),
    },
  };
}

const MODES = { list: "list", summarize: "list, summarize", generate: "generate" };
