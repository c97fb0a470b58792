// What the panels of the desk are made of. Agents are not trusted: nothing they wrote is invisible or turns text around.

import { el, time } from "./dom.js";

// Characters that are not seen, or that change the order of those that are.
const STRANGE = /(?![\t\n])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]/gu;

/** Text of an agent as nodes: strange characters are shown as their numbers. */
export function plain(text) {
  const whole = String(text ?? "");
  const parts = [];
  let from = 0;
  for (const found of whole.matchAll(STRANGE)) {
    parts.push(whole.slice(from, found.index), el("span", { class: "strange", text: named(found[0]) }));
    from = found.index + found[0].length;
  }
  return el("bdi", { dir: "auto" }, ...parts, whole.slice(from));
}

function named(character) {
  return `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

const DEEP = 8; // levels of what an agent sends that are shown as lists
const LONG = 300; // characters of a text that are shown at once; the rest is one click away

/**
 * What an agent sends, as names and values, with the JSON of it behind. Nothing is left out: every name is visible at
 * once, short values come before long ones, and a long text opens in place.
 */
export function shownParams(params) {
  const json = el(
    "details",
    {
      // Made when somebody wants it.
      ontoggle: () => json.querySelector("pre") ?? json.append(shownJson(params)),
    },
    el("summary", { class: "faint", text: "As JSON" }),
  );
  const list = el(
    "div",
    { class: "params", tabIndex: 0, attrs: { role: "group", "aria-label": "Parameters" } },
    names(params, 1),
  );
  return [list, json];
}

function names(value, depth) {
  return el(
    "dl",
    {},
    shortFirst(value).flatMap(([name, each]) => [el("dt", {}, plain(name)), el("dd", {}, shown(each, depth + 1))]),
  );
}

/** The entries of an object, those with short values first. */
function shortFirst(value) {
  return Object.entries(value)
    .map(([name, each]) => ({ entry: [name, each], size: JSON.stringify(each).length }))
    .sort((one, other) => one.size - other.size)
    .map(({ entry }) => entry);
}

/** A long text: its beginning and how long it is, and all of it once somebody opens it. */
function longText(text) {
  const whole = el(
    "details",
    { class: "long", ontoggle: () => whole.querySelector("div") ?? whole.append(el("div", {}, plain(text))) },
    el(
      "summary",
      {},
      plain(`${text.slice(0, LONG)}…`),
      el("span", { class: "faint", text: ` all ${text.length} characters` }),
    ),
  );
  return whole;
}

function shown(value, depth) {
  if (value === null) return faint("nothing");
  if (typeof value === "string") return value.length > LONG ? longText(value) : value ? plain(value) : faint("empty text");
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return el("span", { class: "mono", text: numbered(value) });
  if (!Object.keys(value).length) return faint(Array.isArray(value) ? "empty list" : "nothing in it");
  if (depth > DEEP) return longOrCode(value);
  return Array.isArray(value)
    ? el(
        "ol",
        {},
        value.map((each) => el("li", {}, shown(each, depth + 1))),
      )
    : names(value, depth);
}

function longOrCode(value) {
  const json = JSON.stringify(value);
  return json.length > LONG ? longText(json) : el("code", {}, plain(json));
}

// A browser rounds what is larger than this.
function numbered(value) {
  return `${Math.abs(value) > Number.MAX_SAFE_INTEGER ? "about " : ""}${value}`;
}

function faint(text) {
  return el("span", { class: "faint", text });
}

function shownJson(value) {
  return el(
    "pre",
    { tabIndex: 0, attrs: { "aria-label": "Parameters as JSON" } },
    el("code", {}, plain(JSON.stringify(value, null, 2))),
  );
}

/** What is said where there is nothing to show, and what would be there. */
export function empty(title, about) {
  return el("div", { class: "empty" }, el("p", {}, el("strong", { text: title })), el("p", { text: about }));
}

/** What went wrong, and what to do about it. */
export function wrong(error) {
  if (error.name === "TypeError") return "The server does not answer. Try again in a moment.";
  const texts = [error.message, error.body?.hint].filter(Boolean);
  return texts.map((each) => (/[.!?…]$/.test(each) ? each : `${each}.`)).join(" ");
}

/** Callers by the names of their keys, which operators give. How callers name themselves proves nothing. */
export class Names {
  #known = new Map();

  learn(names) {
    for (const [id, name] of Object.entries(names ?? {})) this.#known.set(id, name);
  }

  of(id) {
    return this.#known.get(id) ?? "";
  }

  /** A caller in a sentence: by name, and by id where that says more. */
  shown(id) {
    const name = this.of(id);
    const isAlone = name && [...this.#known.values()].filter((each) => each === name).length === 1;
    return el(
      "span",
      { title: name ? id : "" },
      name ? el("strong", {}, plain(name)) : null,
      isAlone ? null : el("span", { class: "faint mono" }, name ? " " : null, plain(id)),
    );
  }
}

export function badge(text, kind = "") {
  return el("span", { class: `badge ${kind}` }, plain(text));
}

const KINDS = {
  safe: "good",
  reversible: "",
  destructive: "warn",
  dangerous: "bad",
  advisory: "",
  confirm: "warn",
  verify: "warn",
  danger_zone: "bad",
  running: "",
  completed: "good",
  failed: "bad",
  cancelled: "quiet",
  paused: "warn",
  pending: "quiet",
  loaded: "good",
  loading: "",
  never: "quiet",
  blocked: "bad",
  step: "quiet",
};

/** A state, a danger or a tier, in its colour. */
export function state(name) {
  return badge(String(name).replaceAll("_", " "), KINDS[name] ?? "");
}

export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} days`;
}

/** How long ago something was, with the moment itself for who points at it. */
export function ago(iso, now) {
  if (!iso) return el("span", { class: "faint", text: "never" });
  const seconds = (now - Date.parse(iso)) / 1000;
  const shown = time(iso);
  shown.title = shown.textContent;
  if (seconds < 86400)
    shown.textContent = seconds < 5 ? "just now" : `${duration(seconds).replace(/:\d\d min$/, " min")} ago`;
  return shown;
}

/**
 * A table that becomes a list of cards where there is no room. Columns are {label, cell, class}. Rows stay what they are
 * while their items do, and so does a cell whose `same(item)` does: what somebody points at is not replaced.
 */
export function table(caption, columns, key) {
  const head = el(
    "tr",
    {},
    columns.map((each) =>
      el("th", { class: each.class ?? "", attrs: { scope: "col" } }, each.label || hidden("What can be done")),
    ),
  );
  const body = el("tbody");
  const rows = new Map();
  const element = el(
    "table",
    { class: "facts" },
    el("caption", { class: "hidden", text: caption }),
    el("thead", {}, head),
    body,
  );
  const row = (item) => {
    const made = rows.get(key(item)) ?? { cells: columns.map(cell), sames: [] };
    made.element ??= el("tr", {}, made.cells);
    columns.forEach((each, place) => {
      const same = each.same?.(item);
      if (same !== undefined && same === made.sames[place]) return;
      made.sames[place] = same;
      made.cells[place].replaceChildren(...[each.cell(item)].flat(Infinity).filter((part) => part || part === 0));
    });
    rows.set(key(item), made);
    return made.element;
  };
  const show = (items) => {
    const wanted = items.map(row);
    const there = new Set(items.map(key));
    for (const each of rows.keys()) if (!there.has(each)) rows.delete(each);
    const isSame =
      wanted.length === body.children.length && wanted.every((each, place) => each === body.children[place]);
    if (!isSame) body.replaceChildren(...wanted);
  };
  return { element, show };
}

function cell({ label, class: kind = "" }) {
  return el("td", { class: kind, dataset: { label } });
}

function hidden(text) {
  return el("span", { class: "hidden", text });
}

/** Keeps an element for each item, so that what somebody types or points at stays where it is. */
export class Kept {
  constructor(list, { key, make }) {
    Object.assign(this, { list, key, make, parts: new Map() });
  }

  show(items, now) {
    const there = new Set();
    for (const item of items) {
      const key = this.key(item);
      there.add(key);
      if (!this.parts.has(key)) {
        this.parts.set(key, this.make(item));
        this.list.append(this.parts.get(key).element);
      }
      this.parts.get(key).update?.(item, now);
    }
    for (const [key, part] of this.parts) if (!there.has(key)) this.leave(key, part);
  }

  // While somebody points at the list, or has just decided, nothing moves under their hand.
  leave(key, part) {
    part.element.classList.add("over");
    part.element.querySelectorAll(":is(button, input):enabled").forEach((each) => (each.disabled = true));
    part.gone?.();
    if (this.list.matches(":hover") || this.list.contains(document.activeElement)) return;
    part.element.remove();
    this.parts.delete(key);
  }

  get isEmpty() {
    return this.parts.size === 0;
  }
}

/** Asks in a dialog. Gives {note}, or null. */
export function confirmed({ title, text, action, kind = "primary", note = true }) {
  return new Promise((settle) => {
    const input = el("input", { id: "dialog-note", maxLength: 1000, autocomplete: "off" });
    const field = note
      ? el("div", { class: "field" }, el("label", { htmlFor: "dialog-note", text: "Note for the audit trail" }), input)
      : null;
    const yes = el("button", { class: kind, type: "submit", text: action });
    const no = el("button", { type: "button", text: "Cancel", onclick: () => dialog.close() });
    let said = null;
    const form = el(
      "form",
      {
        method: "dialog",
        onsubmit: (event) => {
          event.preventDefault();
          said = { note: input.value };
          dialog.close();
        },
      },
      el("h2", { text: title }),
      el("p", {}, text),
      field,
      el("div", { class: "row" }, no, yes),
    );
    const dialog = el(
      "dialog",
      { attrs: { "aria-label": title }, onclose: () => (dialog.remove(), settle(said)) },
      form,
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}
