// The inspector: one question through every protocol, as any other client would send it, and what went over the wire.

import { announce, clear, copy, el, icon, itemPath, said, themeButton } from "./dom.js";
import { plain } from "./desk-parts.js";

const LINES = 24; // of a body that are shown at first
const MOST = 60000; // characters of a body that are shown at all
const COPY = "Copy as curl";
const JSON_TYPE = { "content-type": "application/json" };
const MCP_VERSION = "2026-07-28";
const told = JSON.parse(document.getElementById("portico-data").textContent);

/** What each protocol is sent: {path, headers, body}. `in` is a collection, or empty for all of them. */
const PROTOCOLS = [
  {
    name: "NLWeb",
    request: (asked) => ({ path: "/ask", headers: JSON_TYPE, body: nlweb(asked) }),
    answer: (body) => body.results ?? [],
  },
  {
    name: "MCP",
    request: (asked) => ({
      path: "/mcp",
      headers: {
        ...JSON_TYPE,
        accept: "application/json, text/event-stream",
        "mcp-protocol-version": MCP_VERSION,
        "mcp-method": "tools/call",
        "mcp-name": "ask",
      },
      body: rpc("tools/call", {
        name: "ask",
        arguments: nlweb(asked),
        _meta: {
          "io.modelcontextprotocol/protocolVersion": MCP_VERSION,
          "io.modelcontextprotocol/clientInfo": { name: "portico-inspector", version: "1" },
          "io.modelcontextprotocol/clientCapabilities": {},
        },
      }),
    }),
    answer: (body) => body.result?.structuredContent?.results ?? [],
  },
  {
    name: "A2A",
    request: (asked) => ({
      path: "/a2a",
      headers: JSON_TYPE,
      body: rpc("message/send", {
        message: {
          kind: "message",
          messageId: crypto.randomUUID?.() ?? "1",
          role: "user",
          parts: [{ kind: "data", data: nlweb(asked) }],
        },
      }),
    }),
    answer: (body) =>
      (body.result?.artifacts ?? []).flatMap((each) => each.parts).flatMap((part) => part.data?.results ?? []),
  },
  {
    name: "NWP",
    request: ({ text, limit, within }) => ({
      path: "/nwp/site/invoke",
      headers: JSON_TYPE,
      body: within
        ? { action_id: `${within}.search`, params: { query: text, limit } }
        : { action_id: "site.ask", params: { text, limit } },
    }),
    answer: (body) => body.data ?? [],
  },
  {
    name: "MCP-AQL",
    request: ({ text, limit, within }) => ({
      path: "/aql",
      headers: JSON_TYPE,
      body: within
        ? { operation: `search_${within.replace(/\W/g, "_")}`, params: { query: text, first: limit } }
        : { operation: "ask", params: { text, limit } },
    }),
    answer: (body) => body.data ?? [],
  },
  {
    name: "Chat",
    request: ({ text, limit, within }) => ({
      path: told.chat,
      headers: JSON_TYPE,
      body: {
        messages: [{ role: "user", content: text }],
        context: { overrides: { top: limit, ...(within ? { include_category: within } : {}) } },
      },
    }),
    answer: (body) => body.context?.portico?.items ?? [],
  },
];

function nlweb({ text, limit, within }) {
  return { query: { text, limit, ...(within ? { site: within } : {}) } };
}

function rpc(method, params) {
  return { jsonrpc: "2.0", id: 1, method, params };
}

/** The items in an answer, in their order: [{id, name}]. They have an @id, or an id and something of an item. */
export function itemsIn(value, found = new Map()) {
  if (Array.isArray(value)) value.forEach((each) => itemsIn(each, found));
  else if (typeof value === "string") addressed(value, found);
  else if (value && typeof value === "object") {
    const id = value["@id"] ?? (value.name !== undefined || value.collection || value["@type"] ? value.id : undefined);
    const name = value.name ?? value.title ?? value.data?.name;
    if (typeof id === "string" && !("citations" in value))
      found.set(known(id), String(name ?? found.get(known(id)) ?? id));
    else Object.values(value).forEach((each) => itemsIn(each, found));
  }
  return found;
}

// An item that is only named by its address.
function addressed(text, found) {
  const id = known(text);
  if (id !== text && !found.has(id)) found.set(id, id);
}

function known(id) {
  const address = /^(?:https?:\/\/[^/]+)?\/items\/([^?#\s]+)$/.exec(id);
  try {
    return address ? decodeURIComponent(address[1]) : id;
  } catch {
    return id;
  }
}

// Sending

async function send(protocol, asked, key, signal) {
  const { path, headers, body } = protocol.request(asked);
  const text = JSON.stringify(body);
  const began = performance.now();
  const response = await fetch(path, {
    method: "POST",
    // Some protocols heed the language of a browser. Any will do, as where none is named, so that all are asked the same.
    headers: { ...headers, "accept-language": "*", ...(key ? { authorization: `Bearer ${key}` } : {}) },
    body: text,
    credentials: "omit",
    cache: "no-store",
    signal,
  });
  const received = await response.text();
  return {
    path,
    headers,
    body,
    status: response.status,
    received,
    ms: performance.now() - began,
    sent: bytes(text),
    size: bytes(received),
    kind: response.headers.get("content-type") ?? "",
    ...read(protocol, received),
  };
}

function read(protocol, text) {
  try {
    // One message of a stream is as good as one that came alone.
    const json = JSON.parse(
      /^(event|data|id):/.test(text)
        ? text
            .split("\n")
            .filter((line) => line.startsWith("data:"))
            .at(-1)
            .slice(5)
        : text,
    );
    return { json, items: itemsIn(protocol.answer(json)), problem: problemIn(json) };
  } catch {
    return { json: undefined, items: new Map(), problem: "" };
  }
}

/** What went wrong, in the words of an answer. Some protocols say so with a status of success. */
function problemIn(json) {
  const { error } = json?.result?.structuredContent ?? json ?? {};
  return String(error?.message ?? (json?.status && json.message) ?? (typeof error === "string" ? error : ""));
}

function isWell(got) {
  return got.status < 400 && !got.problem;
}

function bytes(text) {
  return new TextEncoder().encode(text).length;
}

function size(count) {
  return count < 10000 ? `${count.toLocaleString()} B` : `${(count / 1000).toFixed(1)} kB`;
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function curl({ path, headers, body }, withKey) {
  const named = Object.entries(headers)
    .map(([name, value]) => ` \\\n  -H ${quoted(`${name}: ${value}`)}`)
    .join("");
  // The key itself is not for a history of commands.
  const key = withKey ? ' \\\n  -H "authorization: Bearer $PORTICO_KEY"' : "";
  return `curl ${quoted(location.origin + path)}${named}${key} \\\n  -d ${quoted(JSON.stringify(body))}`;
}

// Showing

function raw(title, head, value, text) {
  const whole = (value === undefined ? text : JSON.stringify(value, null, 2)).slice(0, MOST);
  const lines = whole.split("\n");
  const code = el("code", {}, plain(lines.slice(0, LINES).join("\n")));
  const more =
    lines.length > LINES
      ? el("button", {
          type: "button",
          class: "small quiet",
          onclick: () => {
            const isOpen = more.getAttribute("aria-expanded") === "true";
            code.replaceChildren(plain(isOpen ? lines.slice(0, LINES).join("\n") : whole));
            more.setAttribute("aria-expanded", String(!isOpen));
            more.textContent = isOpen ? `Show all ${lines.length} lines` : "Show less";
          },
          attrs: { "aria-expanded": "false" },
          text: `Show all ${lines.length} lines`,
        })
      : null;
  return el(
    "section",
    { class: "raw" },
    el("h4", { text: title }),
    el("p", { class: "mono faint" }, head),
    el("pre", { tabIndex: 0, attrs: { "aria-label": title } }, code),
    more,
  );
}

function column(protocol, got, withKey) {
  if (got.error) return el("p", { class: "note bad", text: got.error });
  const button = el(
    "button",
    {
      type: "button",
      class: "small",
      onclick: async () => {
        button.lastChild.textContent = (await copy(curl(got, withKey))) ? "Copied" : "Not copied";
        announce(button.lastChild.textContent);
        setTimeout(() => (button.lastChild.textContent = COPY), 2000);
      },
    },
    icon("copy"),
    el("span", { text: COPY }),
  );
  const headers = Object.entries(got.headers).map(([name, value]) =>
    el("span", { class: "header" }, `${name}: ${value}`),
  );
  return [
    el(
      "p",
      { class: "row" },
      el("span", { class: `badge ${isWell(got) ? "good" : "bad"}`, text: String(got.status) }),
      el("span", { class: "badge", text: `${got.ms.toFixed(0)} ms` }),
      el("span", { class: "badge quiet", text: size(got.size) }),
      button,
    ),
    raw("Request", [el("span", { class: "header", text: `POST ${got.path}` }), headers], got.body),
    raw("Response", [el("span", { class: "header", text: got.kind })], got.json, got.received),
  ];
}

function figures(found) {
  const head = ["Protocol", "Status", "Time", "Sent", "Received", "Tokens", "Items"];
  const most = (name) => Math.max(...found.map(({ got }) => got[name] ?? 0));
  const bar = (got, name) => el("progress", { max: most(name), value: got[name], attrs: { "aria-hidden": "true" } });
  const cell = (name, ...inside) =>
    el("td", { class: `number ${name.toLowerCase()}`, attrs: { "data-label": name } }, inside);
  const rows = found.map(({ protocol, got }) => {
    const cells = got.error
      ? [el("td", { class: "problem", colSpan: 6, text: got.error })]
      : [
          el("td", { class: "status" }, el("span", { class: `badge ${isWell(got) ? "good" : "bad"}`, text: String(got.status) })),
          cell("Time", `${got.ms.toFixed(0)} ms`, bar(got, "ms")),
          cell("Sent", size(got.sent)),
          cell("Received", size(got.size), bar(got, "size")),
          cell("Tokens", `≈ ${Math.ceil((got.sent + got.size) / 4).toLocaleString()}`),
          cell("Items", String(got.items.size)),
        ];
    return el("tr", {}, el("th", { attrs: { scope: "row" }, text: protocol.name }), cells);
  });
  const table = el(
    "table",
    { class: "figures" },
    el("caption", { class: "hidden", text: "What each protocol took" }),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        head.map((name, place) =>
          el("th", {
            class: `${place > 1 ? "number" : ""} ${name.toLowerCase()}`,
            attrs: { scope: "col" },
            text: name,
          }),
        ),
      ),
    ),
    el("tbody", {}, rows),
  );
  return [
    el("h2", { text: "What it took" }),
    el("div", { class: "scroll", tabIndex: 0, attrs: { role: "region", "aria-label": "What it took" } }, table),
    el("p", {
      class: "help",
      text: "Tokens are those of the request and the response together, estimated: four bytes a token.",
    }),
    ...problems(found),
  ];
}

function problems(found) {
  const wrong = found.filter(({ got }) => got.problem);
  return wrong.map(({ protocol, got }) =>
    el("p", { class: "note bad" }, el("strong", { text: `${protocol.name}: ` }), plain(got.problem.slice(0, 500))),
  );
}

function compared(found) {
  const answered = found.filter(({ got }) => got.items?.size);
  if (!answered.length)
    return el("p", {
      class: "note",
      text: "No protocol has found anything. Ask in other words, or in another collection.",
    });
  const names = new Map();
  for (const { got } of answered)
    for (const [id, name] of got.items) if (!names.has(id) || names.get(id) === id) names.set(id, name);
  const places = (id) => answered.map(({ got }) => [...got.items.keys()].indexOf(id) + 1);
  const rows = [...names].map(([id, name]) => {
    const ranks = places(id),
      count = ranks.filter(Boolean).length;
    const mark =
      count === answered.length
        ? el("span", { class: "badge good" }, icon("check"), "all")
        : el("span", { class: "badge quiet", text: `${count} of ${answered.length}` });
    return el(
      "tr",
      { class: count === answered.length ? "same" : "", attrs: { role: "row" } },
      el(
        "th",
        { attrs: { scope: "row", role: "rowheader" } },
        el("a", { href: itemPath(id) }, said(name.slice(0, 200))),
        el("span", { class: "faint mono" }, plain(id.slice(0, 120))),
      ),
      ranks.map((rank, at) =>
        el("td", {
          class: "number",
          dataset: { label: answered[at].protocol.name },
          attrs: { role: "cell" },
          text: rank ? String(rank) : "–",
        }),
      ),
      el("td", { class: "found", attrs: { role: "cell" } }, mark),
    );
  });
  const column = { scope: "col", role: "columnheader" };
  const head = el(
    "tr",
    { attrs: { role: "row" } },
    el("th", { attrs: column, text: "Item" }),
    answered.map(({ protocol }) => el("th", { class: "number", attrs: column, text: protocol.name })),
    el("th", { attrs: column, text: "Found by" }),
  );
  // Roles are said because a table that is laid out otherwise is none to some readers.
  const table = el(
    "table",
    { class: "compared", attrs: { role: "table" } },
    el("caption", { class: "hidden", text: "The place of each item in each answer" }),
    el("thead", { attrs: { role: "rowgroup" } }, head),
    el("tbody", { attrs: { role: "rowgroup" } }, rows),
  );
  return [
    el("h2", { text: "What was found" }),
    el("p", { class: "help", text: "The place of each item in each answer." }),
    el("div", { class: "scroll", tabIndex: 0, attrs: { role: "region", "aria-label": "What was found" } }, table),
  ];
}

function wires(found, withKey, chosen) {
  const columns = found.map(({ protocol, got }) =>
    el(
      "section",
      { class: "card wire", attrs: { "aria-label": protocol.name } },
      el("h3", { text: protocol.name }),
      column(protocol, got, withKey),
    ),
  );
  const buttons = found.map(({ protocol }, place) =>
    el("button", { type: "button", class: "small", text: protocol.name, onclick: () => choose(place, true) }),
  );
  // Where there is room for one only, the others are away; else it is brought into sight.
  const choose = (place, isWanted) => {
    chosen.place = place;
    columns.forEach((each, at) => each.classList.toggle("chosen", at === place));
    buttons.forEach((each, at) => each.setAttribute("aria-pressed", String(at === place)));
    if (isWanted) columns[place].scrollIntoView({ block: "nearest", inline: "start" });
  };
  choose(Math.min(chosen.place, found.length - 1), false);
  return [
    el("h2", { text: "What went over the wire" }),
    el("div", { class: "choose row", attrs: { role: "group", "aria-label": "Protocol" } }, buttons),
    el(
      "div",
      { class: "wires", tabIndex: 0, attrs: { role: "region", "aria-label": "Requests and responses" } },
      columns,
    ),
  ];
}

// The page

async function collections() {
  try {
    const { actions = {} } = await (await fetch("/nwp/site/.nwm", { credentials: "omit" })).json();
    return Object.keys(actions)
      .filter((each) => each.endsWith(".search"))
      .map((each) => each.slice(0, -".search".length));
  } catch {
    return [];
  }
}

async function begin() {
  const input = el("input", {
    id: "question",
    type: "search",
    required: true,
    maxLength: 2000,
    autocomplete: "off",
    placeholder: "Ask anything…",
  });
  const within = el("select", { id: "within" }, el("option", { value: "", text: "Everything" }));
  const limit = el("input", { id: "limit", type: "number", min: 1, max: 50, value: 5 });
  const key = el("input", { id: "key", type: "password", autocomplete: "off", placeholder: "pk_…" });
  const button = el("button", { class: "primary", type: "submit" }, icon("play"), el("span", { text: "Ask" }));
  const status = el("p", { class: "faint", attrs: { role: "status" } });
  const results = el(
    "div",
    {},
    el("p", {
      class: "empty",
      text: "Your question goes over NLWeb, MCP, A2A, NWP, MCP-AQL and the AI Chat Protocol, one after the other. You see what each of them found, what it took, and every request and response as it was.",
    }),
  );
  const chosen = { place: 0 };
  const shown = (found) => [figures(found), compared(found), wires(found, Boolean(key.value.trim()), chosen)].flat();
  let running = null;
  const field = (label, control, more) =>
    el("div", { class: `field ${more ?? ""}` }, el("label", { htmlFor: control.id, text: label }), control);
  const form = el(
    "form",
    {
      class: "card asking",
      onsubmit: async (event) => {
        event.preventDefault();
        if (running) return running.abort();
        running = new AbortController();
        button.lastChild.textContent = "Stop";
        await ask(running.signal);
        running = null;
        button.lastChild.textContent = "Ask";
      },
    },
    field("Question", input, "wide"),
    field("In", within),
    field("Items", limit),
    field("Key (optional)", key, "third"),
    button,
  );
  addEventListener("keydown", (event) => event.key === "Escape" && running?.abort());
  clear(document.getElementById("app")).append(form, status, results);
  for (const name of await collections()) within.append(el("option", { value: name, text: name }));
  input.focus();

  // One after the other, so that none waits for another.
  async function ask(signal) {
    const asked = { text: input.value.trim(), within: within.value, limit: Number(limit.value) || 5 };
    const found = [];
    for (const protocol of PROTOCOLS) {
      status.textContent = `Asking over ${protocol.name}…`;
      try {
        const got = await send(protocol, asked, key.value.trim(), signal);
        // What this site does not speak is left out.
        if (got.status !== 404) found.push({ protocol, got });
      } catch {
        if (signal.aborted) break;
        found.push({ protocol, got: { error: "The server does not answer. Try again in a moment." } });
      }
      if (found.length) clear(results).append(...shown(found));
    }
    status.textContent = signal.aborted ? "Stopped." : "";
    announce(signal.aborted ? "Stopped" : `${found.length} protocols have answered`);
  }
}

document.getElementById("tools").append(themeButton());
begin();
