// Conversations, kept in this browser and nowhere else.

import { store, stored } from "./dom.js";

const MOST = 40; // conversations
const TURNS = 50; // of a conversation, the last ones
const ROOM = 1_000_000; // characters of a conversation, so that none drives out all others
const LONG = 6000; // characters of an item that are worth keeping

export class History {
  /** Each conversation is kept under a name of its own, which begins with this one. */
  constructor(name = "portico.chats") {
    this.prefix = `${name}/`;
  }

  /** All conversations, the newest first. */
  all() {
    const kept = this.#ids().map((id) => this.find(id));
    return kept.filter(Boolean).sort((a, b) => String(b.at).localeCompare(String(a.at)));
  }

  find(id) {
    try {
      const kept = JSON.parse(stored(this.prefix + id));
      return kept?.id === id && Array.isArray(kept.turns) ? kept : null;
    } catch {
      return null;
    }
  }

  /** Keeps a conversation. The oldest make room where there is too little. Whether there was enough. */
  keep(conversation) {
    const turns = fitting(conversation.turns.slice(-TURNS).map(slimmed));
    const text = JSON.stringify({ ...conversation, at: new Date().toISOString(), turns });
    const others = this.#ids().filter((each) => each !== conversation.id);
    while (others.length >= MOST) this.remove(others.shift());
    while (!store(this.prefix + conversation.id, text)) {
      if (!others.length) return false;
      this.remove(others.shift());
    }
    return true;
  }

  remove(id) {
    store(this.prefix + id, null);
  }

  clear() {
    this.#ids().forEach((id) => this.remove(id));
  }

  // An id begins with when its conversation began: the oldest first.
  #ids() {
    try {
      const names = Object.keys(localStorage).filter((each) => each.startsWith(this.prefix));
      return names.map((each) => each.slice(this.prefix.length)).sort();
    } catch {
      return [];
    }
  }
}

// The last turns, as many as there is room for.
function fitting(turns) {
  const sizes = turns.map((each) => JSON.stringify(each).length);
  let size = sizes.reduce((sum, each) => sum + each, 0);
  const first = sizes.findIndex((each) => size <= ROOM || ((size -= each), false));
  return first < 0 ? turns.slice(-1) : turns.slice(first);
}

// A promise is worth nothing later.
function slimmed({ promise, ...turn }) {
  return { ...turn, items: turn.items.map(slimItem) };
}

const KEPT = (
  "@type @id url name image offers price priceCurrency priceRange estimatedCost " +
  "aggregateRating totalTime startDate datePublished location address author actions"
).split(" ");

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
