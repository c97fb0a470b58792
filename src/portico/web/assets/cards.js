// Items as cards: what people look for first in each kind of thing. Everything in an item may be hostile.

import { el, icon, itemPath, labelled, safeUrl, said, time } from "./dom.js";

const MAX_NAME = 200;
const MAX_TEXT = 600;
const MAX_FACT = 80;

/** The beginning of a text, on one line. */
export function brief(value, most = MAX_FACT) {
  const text = plain(value).replace(/\s+/g, " ").trim();
  return text.length > most ? `${[...text.slice(0, most)].join("").trimEnd()}…` : text;
}

/** The first text in a value: itself, of a list, or of an object that has a text or a name. */
export function plain(value) {
  if (typeof value === "string") return value;
  if (typeof value === "number") return String(value);
  if (Array.isArray(value)) return value.slice(0, 20).map(plain).find(Boolean) ?? "";
  if (value && typeof value === "object") return plain(value["@value"] ?? value.text ?? value.name ?? "");
  return "";
}

function first(value) {
  return Array.isArray(value) ? value[0] : value;
}

/** What kind of thing an item is, as schema.org calls it. */
export function kindOf(item) {
  return brief(first(item["@type"]) ?? "Thing")
    .split("/")
    .pop();
}

// What may be said of an item, each with its sign. Empty where the item says nothing of it.

function money(amount, currency, say) {
  const number = Number(amount);
  if (!Number.isFinite(number)) return brief(amount, 30);
  if (number === 0) return say("free");
  const cents = { minimumFractionDigits: Number.isInteger(number) ? 0 : 2, maximumFractionDigits: 2 };
  try {
    if (currency) return new Intl.NumberFormat(say.language, { style: "currency", currency }).format(number);
  } catch {
    return `${number.toLocaleString(say.language, cents)} ${brief(currency, 10)}`;
  }
  return `${say("price")}: ${number.toLocaleString(say.language, cents)}`; // of what, nobody has said
}

const asked = (offer) => Number(offer?.price ?? offer?.lowPrice ?? NaN);

// Of several offers, the cheapest.
function price(item, say) {
  const offers = [item.offers].flat().filter((each) => asked(each) >= 0);
  const offer = offers.sort((one, other) => asked(one) - asked(other))[0] ?? first(item.offers) ?? {};
  const cost = item.estimatedCost;
  const amount = offer.price ?? offer.lowPrice ?? item.price ?? cost?.value ?? cost;
  if (item.isAccessibleForFree === true) return say("free");
  if (amount === undefined || typeof amount === "object") return brief(item.priceRange, 20);
  return money(amount, offer.priceCurrency ?? item.priceCurrency ?? cost?.currency, say);
}

function rating(item, say) {
  const value = Number(item.aggregateRating?.ratingValue);
  if (!Number.isFinite(value)) return "";
  const count = Number(item.aggregateRating.reviewCount ?? item.aggregateRating.ratingCount);
  const shown = value.toLocaleString(say.language, { maximumFractionDigits: 1 });
  return Number.isFinite(count) ? `${shown} (${count.toLocaleString(say.language)})` : shown;
}

// An ISO duration in minutes; null for anything else.
function minutes(text) {
  const found = /^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?$/.exec(
    typeof text === "string" ? text.slice(0, 40) : "",
  );
  return found && text.length > 2
    ? Number(found[1] ?? 0) * 1440 + Number(found[2] ?? 0) * 60 + Number(found[3] ?? 0)
    : null;
}

function duration(item, say) {
  const count = minutes(item.totalTime ?? item.duration ?? item.timeRequired);
  if (!count) return "";
  const told = { hour: Math.floor(count / 60), minute: count % 60 };
  const written = ([unit, number]) => number.toLocaleString(say.language, { style: "unit", unit, unitDisplay: "short" });
  return Object.entries(told)
    .filter(([, number]) => number)
    .map(written)
    .join(" ");
}

function place(item) {
  const where = first(item.location) ?? item;
  const address = first(where.address ?? item.address);
  const street =
    typeof address === "object" && address
      ? [address.streetAddress, address.addressLocality]
          .map((each) => brief(each, 40))
          .filter(Boolean)
          .join(", ")
      : brief(address);
  return where === item ? street : brief(where.name) || street || (typeof where === "string" ? brief(where) : "");
}

function stock(item, say) {
  const told = plain((first(item.offers) ?? {}).availability ?? item.availability)
    .split("/")
    .pop();
  return { __proto__: null, InStock: say("inStock"), OutOfStock: say("soldOut"), SoldOut: say("soldOut") }[told] ?? "";
}

const several =
  (...names) =>
  (item) =>
    names
      .flatMap((name) => item[name] ?? [])
      .slice(0, 3)
      .map((each) => brief(each, 30))
      .filter(Boolean)
      .join(", ");

const FACTS = {
  price: { of: price, class: "price" },
  rating: { of: rating, icon: "star" },
  duration: { of: duration, icon: "clock" },
  start: { of: (item, say) => dated(item.startDate, say), icon: "calendar" },
  published: { of: (item, say) => dated(item.datePublished, say), icon: "calendar" },
  place: { of: place, icon: "place" },
  author: { of: (item) => brief(item.author ?? item.creator), icon: "person" },
  cuisine: { of: several("servesCuisine", "recipeCuisine") },
  genre: { of: several("genre", "articleSection", "category") },
  stock: { of: stock },
};

// Without a prototype, since an item may call itself a constructor.
const SHOWN = {
  __proto__: null,
  Recipe: ["duration", "rating", "price", "cuisine"],
  Product: ["price", "rating", "stock", "genre"],
  Event: ["start", "place", "price"],
  Restaurant: ["rating", "price", "cuisine", "place"],
  Article: ["author", "published", "genre"],
  Book: ["author", "rating", "price", "genre"],
  Place: ["place", "rating", "price"],
  Question: [],
};
const ALIKE = {
  __proto__: null,
  BarOrPub: "Restaurant",
  CafeOrCoffeeShop: "Restaurant",
  FoodEstablishment: "Restaurant",
  NewsArticle: "Article",
  BlogPosting: "Article",
  FAQPage: "Question",
};
const ANY = ["start", "duration", "price", "rating", "author", "place"];

/** A language as it is written where the reader is: English dates are other ones in Britain than in America. */
export function local(language) {
  const spoken = (tag) => tag.split("-")[0].toLowerCase();
  return navigator.languages?.find((each) => spoken(each) === spoken(language)) ?? (language || undefined);
}

// The clock of the place where something happens, not of who reads of it.
function dated(value, say) {
  const text = brief(value, 40).replace(/(:\d\d)(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)$/, "$1");
  return text ? time(text, local(say.language)) : "";
}

function shownOf(kind) {
  return SHOWN[kind] ?? SHOWN[ALIKE[kind]] ?? (kind.endsWith("Event") ? SHOWN.Event : ANY);
}

/** The facts of an item as badges, those that its kind is known by first. */
export function facts(item, say) {
  const found = shownOf(kindOf(item)).map((name) => [FACTS[name], FACTS[name].of(item, say)]);
  return found
    .filter(([, value]) => value)
    .map(([fact, value]) =>
      el(
        "li",
        { class: fact.class ?? "" },
        fact.icon ? icon(fact.icon) : null,
        typeof value === "string" ? said(value) : value,
      ),
    );
}

/** A picture that a page may load: of the site itself, or of the hosts that it allows (`https:` for all). */
export function picture(item, origin, hosts = []) {
  const value = first(item.image ?? item.thumbnailUrl ?? item.logo);
  const url = safeUrl(typeof value === "object" && value ? plain(value.url ?? value.contentUrl) : plain(value), origin);
  return url && isAllowed(new URL(url), origin, hosts) ? url : null;
}

function isAllowed(url, origin, hosts) {
  if (url.origin === origin) return true;
  if (url.protocol !== "https:") return false;
  return hosts.includes("https:") || (!url.port && hosts.includes(url.hostname));
}

/** One item. `act(action, item)` is called when somebody wants to do something with it. */
export function card(item, number, { say, origin, act, outside, images }) {
  const name = brief(item.name ?? item.headline ?? item["@id"], MAX_NAME) || "…";
  const url = safeUrl(item.url, origin);
  const src = picture(item, origin, images);
  const kind = kindOf(item);
  const elsewhere = url && new URL(url).origin !== origin ? new URL(url).hostname : "";
  const tab = outside || elsewhere ? { target: "_blank", rel: "noopener noreferrer" } : {};
  const title = url ? el("a", { href: url, ...tab }, said(name)) : said(name);
  const named = Object.hasOwn(say.own.kinds ?? {}, kind) ? say.own.kinds[kind] : labelled(kind);
  const about = [kind === "Thing" ? "" : named, elsewhere].filter(Boolean).join(" · ");
  const text = brief(item.description, MAX_TEXT);
  const body = el(
    "div",
    { class: "item-body" },
    el(
      "p",
      { class: "item-kind" },
      el("span", { class: "item-number", text: String(number), attrs: { "aria-hidden": "true" } }),
      said(about),
    ),
    el("h3", { class: "item-name clamp" }, title),
    // The direction is that of the text: what does not fit is cut off where it ends.
    text ? el("p", { class: `item-text clamp${kind === "Question" ? " long" : ""}`, dir: "auto", text }) : null,
    el("ul", { class: "item-facts" }, facts(item, say)),
    actions(item, act, origin),
  );
  // Before its address, as this begins to load it.
  const careful = { attrs: { referrerpolicy: "no-referrer" }, loading: "lazy", decoding: "async" };
  const image = src ? el("img", { class: "item-picture", alt: "", ...careful, src }) : null;
  return el(
    "article",
    { class: `item${image ? " pictured" : ""}`, attrs: { tabindex: "-1", "aria-label": name } },
    image,
    body,
  );
}

function actions(item, act, origin) {
  const offered = (Array.isArray(item.actions) ? item.actions : [])
    .filter((each) => each?.protocol === "HTTP")
    .slice(0, 6);
  const shown = offered.map((each) => actionButton(each, item, act, origin)).filter(Boolean);
  return shown.length ? el("div", { class: "item-actions row" }, shown) : null;
}

function actionButton(action, item, act, origin) {
  const label = brief(labelled(brief(action.name, 60)), 60);
  const url = safeUrl(action.endpoint, origin);
  if (!url || new URL(url).origin !== origin) return null;
  if (action.method === "GET") return el("a", { class: "button small", href: url }, said(label));
  return el(
    "button",
    { class: "small", type: "button", title: brief(action.description, 200), onclick: () => act(action, item) },
    said(label),
  );
}

/** What items tell of a result that names them: what they are called, by id, and their currency if they share one. */
export function toldBy(items) {
  const known = [items ?? []].flat().filter((each) => each && typeof each === "object");
  const said = new Set(known.map((each) => each.priceCurrency ?? first(each.offers)?.priceCurrency).filter(Boolean));
  const names = new Map(known.map((each) => [String(each["@id"]), brief(each.name, MAX_NAME)]));
  return { names, currency: said.size === 1 ? brief([...said][0], 10) : "" };
}

/** A value of any shape as text and lists, bounded. Ids of items become links to them. */
export function shownValue(value, origin, told = toldBy(), depth = 0) {
  if (value === null || value === undefined) return el("span", { class: "faint", text: "–" });
  if (typeof value !== "object") return shownScalar(value, origin, told);
  if (depth > 3) return el("span", { text: "…" });
  if (Array.isArray(value))
    return el(
      "ul",
      {},
      value.slice(0, 30).map((each) => {
        return el("li", {}, line(each, origin, told) ?? shownValue(each, origin, told, depth + 1));
      }),
    );
  const inner = within(value, told);
  const shown = ([name, each]) => {
    const money = sum(name, each, inner.currency);
    return money ? said(money) : shownValue(each, origin, inner, depth + 1);
  };
  return el(
    "dl",
    {},
    membersOf(value, inner)
      .slice(0, 30)
      .flatMap((member) => [el("dt", {}, said(labelled(brief(member[0], 60)))), el("dd", {}, shown(member))]),
  );
}

// What an object says of its own members: in which currency they are, and what the only item is called that it names.
function within(value, told) {
  const currency = brief(value.priceCurrency ?? value.currency, 10) || told.currency;
  const ids = Object.values(value).filter((each) => typeof each === "string" && ITEM_ID.test(each));
  const isNamed = ids.length === 1 && typeof value.name === "string" && !told.names.has(ids[0]);
  return { currency, names: isNamed ? new Map([...told.names, [ids[0], brief(value.name, MAX_NAME)]]) : told.names };
}

function membersOf(value, { currency, names }) {
  const called = Object.values(value).map((each) => names.get(each)).filter(Boolean);
  const isTold = (name, each) =>
    (name === "name" && called.includes(each)) || (/^(price)?currency$/i.test(name) && each === currency);
  return Object.entries(value).filter(([name, each]) => !["@type", "@context"].includes(name) && !isTold(name, each));
}

const MONEY = /\b(?:price|total|subtotal|cost|amount|sum|fee|deposit|balance|charge)s?$/i; // as the last of some words

// Money with its currency, by the name of a member; empty for any other number.
function sum(name, number, currency) {
  if (typeof number !== "number" || !currency || !MONEY.test(labelled(brief(name, 60)))) return "";
  try {
    return number.toLocaleString(document.documentElement.lang, { style: "currency", currency });
  } catch {
    return "";
  }
}

const ITEM_ID = /^[\w-]{1,60}\/[\w.-]{1,200}$/;

// A small object in a list, on one line: what it is called, as a link if it names an item, and the rest.
function line(value, origin, told) {
  const isObject = value && typeof value === "object" && !Array.isArray(value);
  const inner = isObject ? within(value, told) : told;
  const members = isObject ? membersOf(value, inner) : [];
  if (!members.length || members.length > 5 || members.some(([, each]) => typeof each === "object")) return null;
  const id = members.find(([, each]) => ITEM_ID.test(each))?.[1];
  const others = members.filter(([, each]) => each !== id);
  const [name, title] = inner.names.has(id)
    ? ["", inner.names.get(id)]
    : (others.find(([key, each]) => typeof each === "string" && key !== "date" && key !== "time") ??
      others[0] ?? ["", id]);
  const written = (key, each) => sum(key, each, inner.currency) || brief(String(each));
  const rest = others
    .filter(([key]) => key !== name)
    .map(([key, each]) => said(`${labelled(brief(key, 40))}: ${written(key, each)}`, { class: "faint" }));
  return el(
    "span",
    { class: "line" },
    id ? itemLink(id, String(title), origin) : said(brief(String(title), 200)),
    rest,
  );
}

function itemLink(id, text, origin) {
  return el("a", { href: `${origin}${itemPath(id)}` }, said(brief(text, 200)));
}

function shownScalar(value, origin, { names }) {
  if (typeof value === "boolean") return said(value ? "✓" : "✗");
  const isPart = typeof value === "number" && !Number.isInteger(value);
  const text = isPart ? value.toLocaleString(document.documentElement.lang) : brief(String(value), MAX_TEXT);
  if (ITEM_ID.test(text)) return itemLink(text, names.get(text) || text, origin);
  const url = /^https?:\/\//.test(text) ? safeUrl(text) : null;
  if (url) return el("a", { href: url, rel: "noopener noreferrer", target: "_blank" }, said(text));
  return /^\d{4}-\d\d-\d\dT\d\d:/.test(text) ? time(text, local(document.documentElement.lang)) : said(text);
}
