// What every page is made of: elements, icons, links that are safe, streams, and forms made from JSON Schemas.
// Text that came from anywhere becomes text, never markup. Knows no protocol.

const SVG = "http://www.w3.org/2000/svg";
const LINKS = new Set(["href", "src", "action", "formaction", "poster"]);
const PICTURE = /^data:image\/(png|jpeg|gif|webp|svg\+xml)[;,]/i;

/**
 * An element. `props` may hold `class`, `text`, `attrs`, `dataset`, listeners (`onclick`), and any property or attribute.
 * Children are nodes, texts, or lists of them; null and false are left out. A link that is not safe is not set.
 */
export function el(tag, props, ...children) {
  if (typeof props === "string" || props instanceof Node || Array.isArray(props))
    return el(tag, {}, props, ...children);
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) give(node, name, value);
  node.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

function give(node, name, value) {
  if (value === undefined || value === null) return;
  if (name === "class") node.className = value;
  else if (name === "text") node.textContent = value;
  else if (name === "dataset") Object.assign(node.dataset, value);
  else if (name === "attrs") Object.entries(value).forEach(([key, each]) => attribute(node, key, each));
  else if (typeof value === "function") node.addEventListener(name.replace(/^on/i, "").toLowerCase(), value);
  else if (name in node && !LINKS.has(name) && !/-/.test(name) && !READ_ONLY.has(name)) node[name] = value;
  else attribute(node, name, value);
}

const READ_ONLY = new Set(["list", "form", "innerHTML", "outerHTML"]);

function attribute(node, name, value) {
  if (value === undefined || value === null || value === false || /^on/i.test(name) || name === "srcdoc") return;
  if (LINKS.has(name) && !safeUrl(String(value)) && !(name === "src" && PICTURE.test(value))) return;
  node.setAttribute(name, value === true ? "" : String(value));
}

export function clear(node) {
  node.replaceChildren();
  return node;
}

/** Text of somebody else: its direction is its own and reaches nothing around it. */
export function said(text, props) {
  return el("bdi", { dir: "auto", ...props, text: String(text ?? "") });
}

/** An address that a page may follow, absolute; null for anything but http, https and mailto. */
export function safeUrl(text, base = document.baseURI) {
  if (typeof text !== "string" || !text.trim() || text.length > 4000) return null;
  try {
    const url = new URL(text.trim(), base);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

// Icons: paths on a grid of 24, drawn with a line.
const ICONS = {
  send: "M5 12h14M13 6l6 6-6 6",
  stop: "M7 7h10v10H7z",
  close: "M6 6l12 12M18 6L6 18",
  history: "M4 12a8 8 0 1 0 2.6-5.9M4 4v4h4M12 8v4l3 2",
  plus: "M12 5v14M5 12h14",
  check: "M5 12.5l4.5 4.5L19 7.5",
  copy: "M9 9h10v10H9zM5 15V5h10",
  trash: "M5 7h14M10 7V5h4v2M7 7l1 12h8l1-12",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  edit: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  retry: "M20 12a8 8 0 1 1-2.6-5.9M20 4v4h-4",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6l1.4 1.4M17 17l1.4 1.4M18.4 5.6L17 7M7 17l-1.4 1.4",
  moon: "M20 14.5A8 8 0 1 1 9.5 4a6.5 6.5 0 0 0 10.5 10.5z",
  system: "M4 5h16v11H4zM9 20h6M12 16v4",
  star: "M12 4l2.5 5.2 5.7.8-4.1 4 1 5.7L12 17l-5.1 2.7 1-5.7-4.1-4 5.7-.8z",
  clock: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16M12 8v4.5l3 1.5",
  calendar: "M5 6h14v13H5zM5 10h14M9 4v4M15 4v4",
  place: "M12 21c4.5-5 6.5-8 6.5-11a6.5 6.5 0 1 0-13 0c0 3 2 6 6.5 11zM12 8a2.2 2.2 0 1 0 0 4.4A2.2 2.2 0 0 0 12 8",
  person: "M12 5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7M5 20c.6-4 3.3-5.5 7-5.5s6.4 1.5 7 5.5",
  up: "M7 11v9H4v-9zM7 11l4-7c1.6 0 2.5 1.2 2.2 2.7L12.7 10H18a2 2 0 0 1 2 2.4l-1.2 6A2 2 0 0 1 16.9 20H7",
  down: "M17 13V4h3v9zM17 13l-4 7c-1.6 0-2.5-1.2-2.2-2.7l.5-3.3H6a2 2 0 0 1-2-2.4l1.2-6A2 2 0 0 1 7.1 4H17",
  alert: "M12 4l9 16H3zM12 10v4.5M12 17v.1",
  shield: "M12 3l7 3v5c0 5-3 8-7 10-4-2-7-5-7-10V6z",
  play: "M8 5l11 7-11 7z",
  globe: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16M4 12h16M12 4c5 5 5 11 0 16M12 4c-5 5-5 11 0 16",
};

/** A drawing beside a text, hidden from screen readers: the name of a control is in its text or label. */
export function icon(name) {
  const drawing = document.createElementNS(SVG, "svg");
  for (const [key, value] of Object.entries({
    viewBox: "0 0 24 24",
    class: `icon icon-${name}`,
    "aria-hidden": "true",
  })) {
    drawing.setAttribute(key, value);
  }
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  drawing.append(path);
  return drawing;
}

/** A button that is an icon alone. */
export function iconButton(name, label, onclick) {
  return el(
    "button",
    { class: "quiet small only", type: "button", title: label, attrs: { "aria-label": label }, onclick },
    icon(name),
  );
}

/** A moment as an element, in the words of the page's language; the text itself if it names no moment. */
export function time(iso, language = document.documentElement.lang || undefined) {
  const moment = new Date(iso);
  if (typeof iso !== "string" || Number.isNaN(moment.getTime())) return el("span", { text: String(iso ?? "") });
  const isDay = /^\d{4}-\d\d-\d\d$/.test(iso);
  const style = isDay ? { dateStyle: "medium", timeZone: "UTC" } : { dateStyle: "medium", timeStyle: "short" };
  return el("time", { dateTime: iso, text: new Intl.DateTimeFormat(language, style).format(moment) });
}

/** Puts a text on the clipboard. Whether it did. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

// Pages that are not on https and not on this machine have no clipboard but this.
function copyBySelection(text) {
  const area = el("textarea", { value: text, class: "hidden", attrs: { "aria-hidden": "true", tabindex: "-1" } });
  const back = document.activeElement;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  back?.focus?.();
  return done;
}

/** Says something to people who do not see the page. */
export function announce(text) {
  let region = document.getElementById("portico-announce");
  if (!region) {
    region = el("div", { id: "portico-announce", attrs: { role: "status", "aria-live": "polite" } });
    // Out of sight on pages of others, too, where our style sheet is not.
    const unseen = { position: "fixed", width: "1px", height: "1px", overflow: "hidden", clipPath: "inset(50%)" };
    Object.assign(region.style, unseen);
    document.body.append(region);
  }
  region.textContent = "";
  setTimeout(() => (region.textContent = text), 50);
}

const THEMES = ["system", "light", "dark"];

/** Light, dark, or as the system has it. Kept in this browser. */
export const theme = {
  get() {
    const kept = stored("portico.theme");
    return THEMES.includes(kept) ? kept : "system";
  },
  set(name) {
    store("portico.theme", name === "system" ? null : name);
    if (name === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
  },
  toggle() {
    const next = THEMES[(THEMES.indexOf(theme.get()) + 1) % THEMES.length];
    theme.set(next);
    return next;
  },
};

const THEME_WORDS = { theme: "Theme", system: "System", light: "Light", dark: "Dark" };
const THEME_ICONS = { system: "system", light: "sun", dark: "moon" };

/** A button that goes from one theme to the next, and tells which it is. */
export function themeButton(words = {}) {
  const said = { ...THEME_WORDS, ...words };
  const button = el("button", { class: "quiet only", type: "button", onclick: () => show(theme.toggle()) });
  const show = (name) => {
    button.replaceChildren(icon(THEME_ICONS[name]));
    button.title = `${said.theme}: ${said[name]}`;
    button.setAttribute("aria-label", button.title);
  };
  show(theme.get());
  return button;
}

/** What this browser keeps under a name; null where it keeps nothing or must not. */
export function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/** Keeps a text under a name; forgets it for null. Whether there was room. */
export function store(name, text) {
  try {
    if (text === null) localStorage.removeItem(name);
    else localStorage.setItem(name, text);
    return true;
  } catch {
    return false;
  }
}

/** An answer that is no success: its `status`, its `body` (JSON or text), and after how many seconds to try again. */
export class Refusal extends Error {
  constructor(status, body, retryAfter) {
    super(messageOf(body) || `The server answered ${status}`);
    Object.assign(this, { status, body, retryAfter });
  }
}

function messageOf(body) {
  if (typeof body !== "object" || body === null) return "";
  const error = body.error;
  return [body.detail, error?.message, typeof error === "string" ? error : "", body.title].find((each) => each) ?? "";
}

/** The JSON of a response. Throws a Refusal for anything but 2xx. */
export async function json(response) {
  const text = await response.text();
  let body = text;
  try {
    body = text ? JSON.parse(text) : null;
  } catch {
    if (response.ok) throw new Refusal(response.status, text, null);
  }
  if (!response.ok) throw new Refusal(response.status, body, retryAfter(response));
  return body;
}

export function retryAfter(response) {
  const seconds = Number.parseInt(response.headers.get("retry-after") ?? "", 10);
  return Number.isFinite(seconds) ? seconds : null;
}

async function* lines(response, signal) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const stop = () => reader.cancel().catch(() => {});
  signal?.addEventListener("abort", stop, { once: true });
  try {
    let rest = "";
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const found = (rest + part.value).split(/\r\n|\n|\r(?!$)/);
      rest = found.pop();
      yield* found;
    }
    if (rest) yield rest;
  } finally {
    signal?.removeEventListener("abort", stop);
    await stop();
  }
  signal?.throwIfAborted();
}

/** Calls `onEvent({event, data, id})` for each server-sent event, as it arrives. `data` is text. */
export async function sse(response, onEvent, signal) {
  let found = { event: "message", data: [] };
  for await (const line of lines(response, signal)) {
    if (line === "") {
      if (found.data.length) onEvent({ ...found, data: found.data.join("\n") });
      found = { event: "message", data: [] };
      continue;
    }
    const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (name === "data") found.data.push(value);
    else if (name === "event" || name === "id") found[name] = value;
  }
}

// Forms

const FORM_WORDS = {
  required: "This is needed", number: "A number is needed", whole: "A whole number is needed", least: "At least",
  most: "At most", shorter: "This is too long", longer: "This is too short",
  pattern: "This does not have the right form", json: "This is no JSON", choose: "Choose…", optional: "optional",
  items: "one per line",
};

/**
 * A form for a JSON Schema: {element, read}. `read()` gives the value, or undefined after it has shown what is wrong.
 * What was left empty and is not required is left out.
 */
export function schemaForm(schema, values = {}, words = {}) {
  const said = { ...FORM_WORDS, ...words };
  const root = resolved(schema ?? {}, schema ?? {});
  const part = objectPart(root, values ?? {}, { root: schema ?? {}, words: said, depth: 0 });
  const element = el("div", { class: "schema-form" }, part.element);
  const read = () => {
    const wrong = [];
    const value = part.read(wrong);
    wrong[0]?.focus();
    return wrong.length ? undefined : (value ?? {});
  };
  return { element, read };
}

// A schema with its references followed and "or null" taken away.
function resolved(schema, root, depth = 0) {
  if (typeof schema !== "object" || schema === null || depth > 8) return {};
  if (typeof schema.$ref === "string") {
    const path = schema.$ref.replace(/^#\/?/, "").split("/").filter(Boolean);
    const target = path.reduce((at, step) => at?.[step.replace(/~1/g, "/").replace(/~0/g, "~")], root);
    return { ...resolved(target, root, depth + 1), ...rest(schema, "$ref") };
  }
  const choices = (schema.anyOf ?? schema.oneOf ?? []).map((each) => resolved(each, root, depth + 1));
  const real = choices.filter((each) => each.type !== "null");
  if (real.length && real.every((each) => "const" in each)) {
    return {
      ...rest(schema, "anyOf", "oneOf"),
      enum: real.map((each) => each.const),
      titles: real.map((each) => each.title),
    };
  }
  if (real.length === 1) return { ...real[0], ...rest(schema, "anyOf", "oneOf") };
  if (Array.isArray(schema.type)) return { ...schema, type: schema.type.find((each) => each !== "null") };
  return schema;
}

function rest(schema, ...names) {
  return Object.fromEntries(Object.entries(schema).filter(([name]) => !names.includes(name)));
}

let counted = 0;
const FEW = 12; // choices that are shown at once
const MANY = 24; // the same, where several may be taken

function partOf(name, schema, value, isRequired, around) {
  const found = resolved(schema, around.root);
  if (found.type === "object" && found.properties && around.depth < 4) return fieldset(name, found, value, around);
  return field(name, found, value, isRequired, around);
}

function objectPart(schema, values, around) {
  const required = new Set(schema.required ?? []);
  const parts = Object.entries(schema.properties ?? {}).map(([name, each]) => [
    name,
    partOf(name, each, values?.[name], required.has(name), { ...around, depth: around.depth + 1 }),
  ]);
  const read = (wrong) => {
    const pairs = parts.map(([name, part]) => [name, part.read(wrong)]).filter(([, value]) => value !== undefined);
    return pairs.length ? Object.fromEntries(pairs) : undefined;
  };
  return {
    element: el(
      "div",
      { class: "fields" },
      parts.map(([, part]) => part.element),
    ),
    read,
  };
}

function fieldset(name, schema, value, around) {
  const part = objectPart(schema, value ?? {}, around);
  const element = el(
    "fieldset",
    {},
    el("legend", {}, said(schema.title ?? labelled(name))),
    help(schema),
    part.element,
  );
  return { element, read: part.read };
}

function help(schema, id) {
  return schema.description ? el("p", { class: "help", id: id ?? "" }, said(schema.description)) : null;
}

/** Where an item is shown. */
export function itemPath(id) {
  return `/items/${id.split("/").map(encodeURIComponent).join("/")}`;
}

/** `recipe_category` and `recipeCategory` as people write them. */
export function labelled(name) {
  const words = String(name)
    .replace(/([a-z\d])([A-Z])/g, "$1 $2")
    .replace(/[_-]+/g, " ")
    .trim();
  return words.charAt(0).toUpperCase() + words.slice(1).toLowerCase();
}

function field(name, schema, value, isRequired, around) {
  const id = `field-${(counted += 1)}`;
  const made = control(schema, value ?? schema.default, around);
  const input = made.input;
  const title = schema.title && schema.title !== name ? schema.title : labelled(name);
  Object.assign(input, { id, name });
  if (isRequired && input.matches("input, select, textarea")) input.required = true;
  const problem = el("p", { class: "problem", id: `${id}-problem`, hidden: true });
  input.setAttribute("aria-describedby", `${id}-help ${id}-problem`);
  const optional =
    isRequired || schema.type === "boolean" ? null : el("span", { class: "faint", text: ` ${around.words.optional}` });
  const isGroup = input.classList.contains("pills");
  const label = el(
    isGroup ? "span" : "label",
    { id: `${id}-label`, class: "label", htmlFor: id },
    said(title),
    optional,
  );
  if (isGroup) input.setAttribute("aria-labelledby", `${id}-label`);
  const shown = schema.type === "boolean" ? el("div", { class: "check" }, input, label) : [label, input];
  const read = (wrong) => {
    const [found, complaint] = made.read(isRequired, around.words);
    problem.textContent = complaint ?? "";
    problem.hidden = !complaint;
    input.setAttribute("aria-invalid", complaint ? "true" : "false");
    if (complaint) wrong.push(input);
    return found;
  };
  return { element: el("div", { class: "field" }, shown, help(schema, `${id}-help`), problem), read };
}

function control(schema, value, around) {
  if ("const" in schema) return choice({ ...schema, enum: [schema.const] }, schema.const, around);
  if (Array.isArray(schema.enum))
    return (schema.enum.length <= FEW && schema.enum.length > 1 ? pills : choice)(schema, value, around);
  if (schema.type === "array") {
    const each = resolved(schema.items ?? {}, around.root);
    if (Array.isArray(each.enum) && each.enum.length <= MANY)
      return pills({ ...each, minItems: schema.minItems }, value ?? [], around, true);
  }
  switch (schema.type) {
    case "boolean":
      return truth(value);
    case "integer":
    case "number":
      return number(schema, value);
    case "array":
      return array(schema, value, around);
    case "string":
      return text(schema, value);
    default:
      return anything(schema, value);
  }
}

function choice(schema, value, around) {
  const options = schema.enum.map((each, place) => {
    const title = schema.titles?.[place] ?? schema.enumNames?.[place] ?? each;
    return el("option", { value: String(place), text: String(title), selected: each === value });
  });
  const isChosen = schema.enum.includes(value);
  const none = el("option", { value: "", text: around.words.choose, selected: !isChosen });
  const input = el("select", {}, isChosen && schema.enum.length === 1 ? options : [none, ...options]);
  return {
    input,
    read: (isRequired, words) => (input.value === "" ? empty(isRequired, words) : [schema.enum[Number(input.value)]]),
  };
}

// Few choices stand side by side, one or several of them to be taken.
function pills(schema, value, around, isSeveral = false) {
  const name = `pills-${(counted += 1)}`;
  const isTaken = (each) => (isSeveral ? [].concat(value).includes(each) : each === value);
  const inputs = schema.enum.map((each) =>
    el("input", { type: isSeveral ? "checkbox" : "radio", name, class: "hidden", checked: isTaken(each) }),
  );
  const titles = schema.enum.map((each, place) => String(schema.titles?.[place] ?? schema.enumNames?.[place] ?? each));
  const input = el(
    "div",
    { class: "pills", attrs: { role: isSeveral ? "group" : "radiogroup", tabindex: "-1" } },
    inputs.map((each, place) => el("label", { class: "pill" }, each, said(titles[place]))),
  );
  const read = (isRequired, words) => {
    const taken = schema.enum.filter((_, place) => inputs[place].checked);
    if (!taken.length || taken.length < (schema.minItems ?? 0)) return empty(isRequired, words);
    return [isSeveral ? taken : taken[0]];
  };
  return { input, read };
}

function empty(isRequired, words) {
  return isRequired ? [undefined, words.required] : [undefined];
}

function truth(value) {
  const input = el("input", { type: "checkbox", checked: value === true });
  // What nobody touched and has no default was not said.
  let touched = value !== undefined;
  input.addEventListener("change", () => (touched = true));
  return { input, read: (isRequired) => [touched || isRequired ? input.checked : undefined] };
}

function number(schema, value) {
  const isWhole = schema.type === "integer";
  const input = el("input", { type: "text", inputMode: isWhole ? "numeric" : "decimal", value: value ?? "" });
  return {
    input,
    read: (isRequired, words) => (input.value.trim() ? numeric(schema, input.value, words) : empty(isRequired, words)),
  };
}

function numeric(schema, written, words) {
  const found = Number(written.trim().replace(",", "."));
  const least = schema.minimum ?? -Infinity;
  const most = schema.maximum ?? Infinity;
  if (!Number.isFinite(found)) return [undefined, words.number];
  if (schema.type === "integer" && !Number.isInteger(found)) return [undefined, words.whole];
  if (found < least || found <= (schema.exclusiveMinimum ?? -Infinity))
    return [undefined, `${words.least} ${schema.minimum ?? schema.exclusiveMinimum}`];
  if (found > most || found >= (schema.exclusiveMaximum ?? Infinity))
    return [undefined, `${words.most} ${schema.maximum ?? schema.exclusiveMaximum}`];
  return [found];
}

const TYPES = {
  date: "date",
  "date-time": "datetime-local",
  time: "time",
  email: "email",
  uri: "url",
  password: "password",
};

function text(schema, value) {
  const isLong = schema.format === undefined && ((schema.maxLength ?? 0) > 400 || String(value ?? "").length > 120);
  const input = isLong ? el("textarea", { rows: 3 }) : el("input", { type: TYPES[schema.format] ?? "text" });
  const isMoment = schema.format === "date-time";
  Object.assign(input, { value: isMoment ? local(value) : (value ?? ""), dir: "auto", autocomplete: "off" });
  const written = () => (isMoment && !schema.isLocal ? new Date(input.value).toISOString() : input.value);
  return {
    input,
    read: (isRequired, words) => (input.value ? texted(schema, written(), words) : empty(isRequired, words)),
  };
}

// A moment as its input takes it: by the clock of whoever looks, and without the seconds.
function local(value) {
  const said = String(value ?? "");
  if (!/(Z|[+-]\d\d:?\d\d)$/i.test(said)) return said.slice(0, 16);
  const moment = new Date(said);
  if (Number.isNaN(moment.getTime())) return "";
  return new Date(moment.getTime() - moment.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

function texted(schema, written, words) {
  if (written.length > (schema.maxLength ?? Infinity)) return [undefined, words.shorter];
  if (written.length < (schema.minLength ?? 0)) return [undefined, words.longer];
  if (schema.pattern && !matches(schema.pattern, written)) return [undefined, words.pattern];
  return [written];
}

function matches(pattern, written) {
  try {
    return new RegExp(pattern, "u").test(written);
  } catch {
    return true; // the server knows its own patterns
  }
}

function array(schema, value, around) {
  const each = resolved(schema.items ?? {}, around.root);
  if (each.type === "object" || each.type === "array") return anything(schema, value);
  const input = el("textarea", {
    rows: 3,
    dir: "auto",
    placeholder: around.words.items,
    value: (value ?? []).join("\n"),
  });
  const read = (isRequired, words) => {
    const written = input.value
      .split("\n")
      .map((line) => line.trim())
      .filter(Boolean);
    if (!written.length) return empty(isRequired, words);
    const found = written.map((line) => element(each, line, words));
    const wrong = found.find(([, complaint]) => complaint);
    if (found.length > (schema.maxItems ?? Infinity)) return [undefined, `${words.most} ${schema.maxItems}`];
    if (found.length < (schema.minItems ?? 0)) return [undefined, `${words.least} ${schema.minItems}`];
    return wrong ?? [found.map(([value]) => value)];
  };
  return { input, read };
}

function element(schema, line, words) {
  if (Array.isArray(schema.enum))
    return schema.enum.includes(line) ? [line] : [undefined, `${words.choose} ${schema.enum.join(", ")}`];
  if (schema.type === "integer" || schema.type === "number") return numeric(schema, line, words);
  return schema.type === "boolean" ? [line.toLowerCase() === "true"] : texted(schema, line, words);
}

// What has no form of its own is written as JSON.
function anything(schema, value) {
  const written =
    value === undefined || (typeof value === "object" && !Object.keys(value ?? {}).length)
      ? ""
      : JSON.stringify(value, null, 1);
  const input = el("textarea", {
    rows: 3,
    class: "mono",
    value: written,
    spellcheck: false,
    placeholder: schema.type === "array" ? "[]" : "{}",
  });
  const read = (isRequired, words) => {
    if (!input.value.trim()) return empty(isRequired, words);
    try {
      return [JSON.parse(input.value)];
    } catch {
      return [undefined, words.json];
    }
  };
  return { input, read };
}
