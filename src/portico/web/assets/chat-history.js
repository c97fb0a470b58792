// Conversations, kept in this browser and nowhere else.

import { store, stored } from "./dom.js";

const MOST = 40; // conversations
const LONG = 6000; // characters of an item that are worth keeping

export class History {
  constructor(name = "portico.chats") {
    this.name = name;
  }

  /** All conversations, the newest first. */
  all() {
    try {
      const kept = JSON.parse(stored(this.name) ?? "[]");
      return Array.isArray(kept)
        ? kept.filter((each) => each && typeof each.id === "string" && Array.isArray(each.turns))
        : [];
    } catch {
      return [];
    }
  }

  find(id) {
    return this.all().find((each) => each.id === id) ?? null;
  }

  /** Keeps a conversation. The oldest make room where there is too little. */
  keep(conversation) {
    const slim = { ...conversation, at: new Date().toISOString(), turns: conversation.turns.map(slimmed) };
    let kept = [slim, ...this.all().filter((each) => each.id !== slim.id)].slice(0, MOST);
    while (kept.length && !store(this.name, JSON.stringify(kept))) kept = kept.slice(0, -1);
  }

  remove(id) {
    const kept = this.all().filter((each) => each.id !== id);
    store(this.name, kept.length ? JSON.stringify(kept) : null);
  }

  clear() {
    store(this.name, null);
  }
}

// A promise is worth nothing later.
function slimmed({ promise, ...turn }) {
  return { ...turn, items: turn.items.map(slimItem) };
}

const KEPT = [
  "@type",
  "@id",
  "url",
  "name",
  "image",
  "offers",
  "price",
  "priceCurrency",
  "priceRange",
  "aggregateRating",
  "totalTime",
  "startDate",
  "datePublished",
  "location",
  "address",
  "author",
  "actions",
];

function slimItem({ place, item }) {
  if (JSON.stringify(item).length <= LONG) return { place, item };
  const few = Object.fromEntries(
    KEPT.filter((name) => name in item)
      .map((name) => [name, item[name]])
      .filter(([, value]) => JSON.stringify(value).length <= LONG / 8),
  );
  return {
    place,
    item: {
      ...few,
      name: String(few.name ?? item["@id"] ?? "").slice(0, 300),
      description: String(item.description ?? "").slice(0, 600),
    },
  };
}

/** A conversation as a text that people can read. */
export function written(conversation) {
  const turns = conversation.turns.map((turn) => {
    const items = [...turn.items]
      .sort((a, b) => a.place - b.place)
      .map(({ item }, at) => `${at + 1}. ${item.name ?? item["@id"]}${item.url ? ` <${item.url}>` : ""}`);
    return [`## ${turn.question}`, turn.text, items.join("\n"), turn.error?.message ?? ""].filter(Boolean).join("\n\n");
  });
  return [`# ${conversation.title}`, ...turns].join("\n\n") + "\n";
}
