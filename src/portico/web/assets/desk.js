// The operator's desk: signing in with a key, the panels, and asking again every two seconds while somebody looks.

import { Refusal, announce, clear, el, json, themeButton } from "./dom.js";
import { audit } from "./desk-audit.js";
import { Names } from "./desk-parts.js";
import { waiting, waitingCount } from "./desk-waiting.js";
import { feedback, sources, traffic, work } from "./desk-watch.js";

const API = "/desk/api";
const POLL = 2000;
const KEY = "portico.desk"; // of this tab's session; the key is in no cookie and in no address
const TITLE = document.title;
const app = document.getElementById("app");

/** Requests with a key. What time it is at the server is known from its answers. */
class Api {
  constructor(key) {
    this.key = key;
    this.skew = 0;
    this.names = new Names();
  }

  get = (path) => this.#send(path, {});

  post = (path, body) =>
    this.#send(path, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } });

  now = () => Date.now() + this.skew;

  async #send(path, { headers, ...options }) {
    const response = await fetch(`${API}/${path}`, {
      ...options,
      headers: { ...headers, authorization: `Bearer ${this.key}` },
      cache: "no-store",
      credentials: "omit",
      referrerPolicy: "no-referrer",
    });
    const date = Date.parse(response.headers.get("date") ?? "");
    if (date) this.skew = Math.abs(date - Date.now()) < 1500 ? 0 : date - Date.now();
    const body = await json(response);
    return path.endsWith("/code") ? { ...body, skew: this.skew } : body;
  }
}

function kept() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function keep(key) {
  try {
    if (key) sessionStorage.setItem(KEY, key);
    else sessionStorage.removeItem(KEY);
  } catch {
    // Then it is known until the page is left.
  }
}

function signIn(problem = "") {
  document.title = TITLE;
  tools(false);
  const input = el("input", {
    id: "key",
    type: "password",
    autocomplete: "off",
    spellcheck: false,
    required: true,
    placeholder: "pk_…",
  });
  const remember = el("input", { id: "remember", type: "checkbox", checked: true });
  const told = el("p", { class: "problem", text: problem, attrs: { role: "alert" } });
  const button = el("button", { class: "primary", type: "submit", text: "Sign in" });
  const form = el(
    "form",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        button.disabled = true;
        try {
          const api = new Api(input.value.trim());
          const pending = await api.get("pending");
          keep(remember.checked ? api.key : null);
          open(api, pending);
        } catch (error) {
          told.textContent = refused(error);
          button.disabled = false;
          input.select();
        }
      },
    },
    el(
      "div",
      { class: "field" },
      el("label", { htmlFor: "key", text: "Your key" }),
      input,
      el(
        "p",
        { class: "help" },
        "A key with the scope ",
        el("code", { text: "approve" }),
        ". Make one with ",
        el("code", { text: "portico keys create --name you --scope approve" }),
        ".",
      ),
    ),
    el(
      "div",
      { class: "check" },
      remember,
      el("label", { htmlFor: "remember", text: "Remember it until this tab is closed" }),
    ),
    told,
    el("div", {}, button),
  );
  clear(app).append(el("section", { class: "card signin", attrs: { "aria-label": "Sign in" } }, form));
  input.focus();
}

function refused(error) {
  if (!(error instanceof Refusal)) return "The server does not answer.";
  if (error.status === 401) return "This key is not known here.";
  if (error.status === 403)
    return error.body?.details?.scope ? "This key may not approve what others do." : error.message;
  return error.message;
}

function open(api, pending) {
  tools(true);
  const banner = el("p", { class: "note warn banner", hidden: true, attrs: { role: "status" } });
  const count = el("span", { class: "badge warn", hidden: true });
  const calls = waiting(api, () => tick(true));
  const panels = [
    { id: "waiting", name: "Waiting", extra: count, element: calls.element },
    { id: "work", name: "Agents and tasks", ...work(api) },
    { id: "traffic", name: "Traffic", ...traffic(api) },
    { id: "sources", name: "Sources", ...sources(api) },
    { id: "audit", name: "Audit trail", ...audit(api) },
    { id: "feedback", name: "Feedback", ...feedback(api) },
  ];
  let [current, latest, last, before] = [panels[0], pending, 0, 0];
  let [busy, again, isOver, timer] = [false, false, false, 0];
  const body = el("div", { class: "panel", id: "panel", tabIndex: -1, attrs: { role: "tabpanel" } });
  const tabs = el(
    "div",
    { class: "tabs", attrs: { role: "tablist", "aria-label": "Desk" } },
    panels.map((each) => {
      each.tab = el(
        "button",
        {
          type: "button",
          id: `tab-${each.id}`,
          attrs: { role: "tab", "aria-controls": "panel" },
          onclick: () => choose(each),
        },
        each.name,
        each.extra,
      );
      return each.tab;
    }),
  );
  tabs.addEventListener("keydown", (event) => {
    const at = panels.indexOf(current);
    const place = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
    if (place === undefined) return;
    event.preventDefault();
    const next = panels.at(place % panels.length);
    choose(next);
    next.tab.focus();
  });
  clear(app).append(banner, tabs, body);

  function choose(panel) {
    current = panel;
    last = 0;
    for (const each of panels) {
      each.tab.setAttribute("aria-selected", String(each === panel));
      each.tab.tabIndex = each === panel ? 0 : -1;
    }
    body.setAttribute("aria-labelledby", panel.tab.id);
    clear(body).append(panel.element);
    history.replaceState(null, "", panel === panels[0] ? location.pathname : `#${panel.id}`);
    tick(true);
  }

  function show(found) {
    latest = found;
    api.names.learn(found.names);
    calls.show(found, api.now());
    const waits = waitingCount(found);
    count.textContent = String(waits);
    count.hidden = !waits;
    document.title = waits ? `(${waits}) ${TITLE}` : TITLE;
    if (waits > before) announce(`${waits} waiting`);
    before = waits;
  }

  async function refresh(at) {
    show(await api.get("pending"));
    if (current.refresh && at - last >= current.seconds * 1000) {
      last = at;
      await current.refresh();
    }
  }

  async function tick(now) {
    if (busy) return void (again = again || now);
    busy = true;
    let pause = POLL;
    try {
      await refresh(Date.now());
      banner.hidden = true;
    } catch (error) {
      pause = isOver ? 0 : failed(error);
    } finally {
      busy = false;
    }
    clearTimeout(timer);
    if (isOver || document.hidden) return;
    timer = setTimeout(tick, again ? 0 : pause);
    again = false;
  }

  // How long to wait before asking again.
  function failed(error) {
    if (error instanceof Refusal && (error.status === 401 || error.status === 403)) {
      leave(refused(error));
      return 0;
    }
    banner.textContent = error instanceof Refusal ? error.message : "The server does not answer. Trying again…";
    banner.hidden = false;
    return Math.max(POLL, (error.retryAfter ?? 0) * 1000);
  }

  function leave(why) {
    isOver = true;
    clearTimeout(timer);
    clearInterval(ticking);
    document.removeEventListener("visibilitychange", look);
    document.removeEventListener("desk-leave", onLeave);
    keep(null);
    api.key = "";
    signIn(why);
  }

  const look = () => !document.hidden && tick(true);
  const onLeave = () => leave("");
  document.addEventListener("visibilitychange", look);
  document.addEventListener("desk-leave", onLeave);
  const ticking = setInterval(() => calls.show(latest, api.now()), 1000);
  show(pending);
  choose(panels.find((each) => `#${each.id}` === location.hash) ?? panels[0]);
}

function tools(signedIn) {
  const leave = signedIn
    ? el("button", {
        class: "quiet",
        type: "button",
        text: "Sign out",
        onclick: () => document.dispatchEvent(new Event("desk-leave")),
      })
    : null;
  clear(document.getElementById("tools")).append(...[themeButton(), leave].filter(Boolean));
}

const key = kept();
if (key) {
  const api = new Api(key);
  api.get("pending").then(
    (pending) => open(api, pending),
    (error) => {
      if (error instanceof Refusal && error.status < 500 && error.status !== 429) keep(null);
      signIn(refused(error));
    },
  );
} else signIn();
