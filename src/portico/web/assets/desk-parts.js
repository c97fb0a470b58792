// What the panels of the desk are made of. Agents are not trusted: nothing they wrote is invisible or turns text around.

import { el, time } from "./dom.js";

// Characters that are not seen, or that change the order of those that are.
const STRANGE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu;

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

/** A value as JSON that can be read. */
export function shownJson(value) {
  return el(
    "pre",
    { tabIndex: 0, attrs: { "aria-label": "Parameters" } },
    el("code", {}, plain(JSON.stringify(value, null, 2))),
  );
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

/** A table that becomes a list of cards where there is no room. Columns are {label, cell, class}. */
export function table(caption, columns) {
  const head = el(
    "tr",
    {},
    columns.map((each) => el("th", { class: each.class ?? "", attrs: { scope: "col" }, text: each.label })),
  );
  const body = el("tbody");
  const element = el(
    "table",
    { class: "facts" },
    el("caption", { class: "hidden", text: caption }),
    el("thead", {}, head),
    body,
  );
  const row = (item) =>
    el(
      "tr",
      {},
      columns.map((each) => el("td", { class: each.class ?? "", dataset: { label: each.label } }, each.cell(item))),
    );
  return { element, show: (items) => body.replaceChildren(...items.map(row)) };
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

  // While somebody points at the list nothing moves under their hand.
  leave(key, part) {
    part.element.classList.add("over");
    part.element.querySelectorAll("button, input").forEach((each) => (each.disabled = true));
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
