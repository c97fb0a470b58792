// A conversation with a site: the log, the place to ask, and what goes on in between. Lives on our page and on others.

import { clear, el, icon, Refusal, said } from "./dom.js";
import { act } from "./chat-forms.js";
import { History } from "./chat-history.js";
import { newTurn, Turn } from "./chat-turn.js";
import { Wire } from "./chat-wire.js";
import { courtesy } from "./words.js";

const HOUR_MS = 55 * 60 * 1000; // that a session is good for
const PREVIOUS = 5; // questions that are told to a site that has forgotten them

export class Chat {
  #stopping = null;
  #editing = null;
  #key = "";

  /** `root` is filled with the conversation. See `defaults` for the options. */
  constructor(root, options) {
    this.options = { ...defaults, ...options };
    this.root = root;
    this.say = this.options.say;
    this.wire = new Wire(this.options.origin, () => this.#key, this.options.chat);
    this.history = new History(this.options.outside ? `portico.chats.${this.options.origin}` : undefined);
    this.hasFeedback = true;
    this.turns = [];
    this.id = newId();
    this.preview = new Preview(root);
    // Whoever made the page could read what is typed there: no key is asked for.
    this.setKey = this.options.outside ? null : (key) => ((this.#key = key), this.wire.forget());
    this.#build();
  }

  #build() {
    const { say, options } = this;
    this.root.lang = say.language;
    this.log = el("div", {
      class: "chat-log",
      attrs: { role: "log", "aria-live": "polite", "aria-label": say("conversation"), tabindex: "-1" },
    });
    this.input = el("textarea", {
      class: "chat-input",
      rows: 1,
      maxLength: 4000,
      autocomplete: "off",
      enterKeyHint: "send",
      placeholder: options.placeholder || say("askAnything"),
      attrs: { "aria-label": say("question"), "aria-describedby": "chat-hint" },
      oninput: () => this.#grow(),
      onkeydown: (event) => this.#typed(event),
    });
    this.button = el("button", { class: "primary only chat-send", type: "submit" });
    this.pickers = el(
      "div",
      { class: "chat-pickers" },
      this.#collections(),
      this.#modes(),
      el("span", { id: "chat-hint", class: "hidden", text: say("enterHint") }),
    );
    this.composer = el(
      "form",
      {
        class: "chat-composer",
        attrs: { role: "search", "aria-label": `${say("ask")} ${options.site}`.trim() },
        onsubmit: (event) => this.#submit(event),
      },
      el("div", { class: "chat-box" }, this.input, this.pickers, this.button),
    );
    this.starters = el("div", { class: "chat-starters" }, this.#suggested());
    // Elsewhere nobody has said yet whom one asks.
    const greeting = options.outside && options.site ? [el("p", { class: "chat-greeting" }, said(options.site))] : [];
    this.root.append(...greeting, this.log, this.composer, this.starters);
    // On a page of somebody else only what is pressed here is meant for us.
    (options.outside ? this.root : document).addEventListener("keydown", (event) => this.#escaped(event));
    this.#show();
  }

  #collections() {
    const { say, options } = this;
    const choices = [
      el("option", { value: "", text: say("everywhere") }),
      ...options.collections.map((each) =>
        el("option", { value: each.name, text: each.title, selected: each.name === options.collection }),
      ),
    ];
    this.collection = el("select", { attrs: { "aria-label": say("where") } }, choices);
    this.collection.hidden = options.collections.length < 2;
    return this.collection;
  }

  #modes() {
    const { say, options } = this;
    this.mode = el(
      "select",
      { attrs: { "aria-label": say("how") } },
      ["summarize", "list", "generate"].map((each) =>
        el("option", { value: each, text: say(each), selected: each === options.mode }),
      ),
    );
    return this.mode;
  }

  /** Questions to begin with. */
  suggested() {
    return this.options.starters;
  }

  #suggested() {
    const buttons = this.suggested().map((each) =>
      el("button", { class: "small suggestion", type: "button", onclick: () => this.ask(each) }, said(each)),
    );
    return buttons.length ? [el("span", { class: "faint", text: this.say("starters") }), ...buttons] : [];
  }

  // Writing

  #grow() {
    this.input.dir = this.input.value ? "auto" : ""; // what stands there at first is in the language of the page
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight + 2, 200)}px`;
  }

  #typed(event) {
    // While an input method composes, Enter chooses a word.
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.composer.requestSubmit();
    }
    if (event.key === "ArrowUp" && !this.input.value && this.turns.length) {
      event.preventDefault();
      this.edit(this.turns.at(-1));
    }
    if (event.key === "Escape" && this.#editing) this.#unedit();
  }

  // What lies on top goes first. A dialog closes by itself.
  #escaped(event) {
    if (event.key !== "Escape" || event.isComposing || event.target.closest?.("dialog")) return;
    if (this.preview.isShown) return this.preview.hide();
    if (!this.#stopping) return;
    event.preventDefault();
    this.halt();
  }

  #submit(event) {
    event.preventDefault();
    const text = this.input.value.trim();
    if (!text) return this.#stopping ? this.halt() : this.input.focus();
    const replace = this.#editing;
    this.#unedit();
    this.ask(text, { replace });
  }

  /** Puts a question back where it can be changed. What follows it goes once it is asked again. */
  edit(turn) {
    this.#editing = turn;
    this.input.value = turn.data.question;
    this.composer.classList.add("editing");
    this.#grow();
    this.input.focus();
  }

  #unedit() {
    this.#editing = null;
    this.input.value = "";
    this.composer.classList.remove("editing");
    this.#grow();
  }

  // Asking

  /**
   * Asks. `replace` is a turn whose place this one takes, `answers` go to what was asked back, `alone` forgets what came
   * before, and what is `linked` nobody here has asked: it is only answered.
   */
  async ask(text, { replace = null, answers = undefined, alone = false, linked = false } = {}) {
    this.stop();
    if (replace) this.#cut(replace);
    const [collection, mode] = [this.collection.value, this.mode.value];
    const asked = {
      text: answers ? "" : text,
      answers,
      collection,
      mode,
      language: this.options.answers,
      linked,
      ...(alone ? {} : this.#before()),
    };
    const turn = new Turn(newTurn(text, { answers, collection, mode }), this);
    this.turns.push(turn);
    this.log.append(turn.element);
    this.#show();
    this.#reveal(turn);
    const word = answers ? "" : courtesy(text);
    if (word) return this.#greet(turn, word);
    await this.#run(turn, (signal) => this.wire.ask(asked, (...event) => turn.apply(...event), signal));
  }

  // A greeting is no question, and thanks are none: nobody has to look for an answer.
  #greet(turn, word) {
    Object.assign(turn.data, { greeting: true, text: this.say(word) });
    turn.finish();
    this.keep();
  }

  /** The next items of an answer, from where the answer came. */
  async more(turn) {
    this.stop();
    const before = turn.data.items.length;
    Object.assign(turn.data, { base: before, error: undefined, stopped: false });
    turn.element.setAttribute("aria-busy", "true");
    const asked = {
      text: turn.data.standalone ?? turn.data.question,
      collection: turn.data.asked.collection ?? "",
      mode: "list",
      language: this.options.answers,
      start: before,
    };
    const { text, session } = turn.data;
    const take = (event, data) => (event === "result" || isTrouble(event, data)) && turn.apply(event, data);
    await this.#run(turn, (signal) => this.wire.ask(asked, take, signal));
    const isCut = turn.data.error || turn.data.stopped;
    Object.assign(turn.data, { text, session, exhausted: !isCut && turn.data.items.length === before });
    turn.more();
    this.keep();
  }

  async #run(turn, work) {
    const stopping = new AbortController();
    this.#stopping = stopping;
    this.#show();
    try {
      await work(stopping.signal);
      if (turn.data.promise) await turn.settle(stopping.signal);
    } catch (error) {
      if (stopping.signal.aborted) turn.data.stopped = !turn.data.cancelled;
      else turn.data.error = broken(error, this.say, this.options.outside);
    }
    if (this.#stopping === stopping) this.#stopping = null;
    turn.finish();
    this.#show();
    this.keep();
  }

  // What the site is told of what came before.
  #before() {
    const asked = this.turns.map((each) => each.data).filter((each) => !each.greeting);
    const last = asked.at(-1);
    if (!last) return {};
    const isFresh = last.session && Date.now() - Date.parse(last.at) < HOUR_MS;
    return isFresh
      ? { session: last.session }
      : { previous: asked.slice(-PREVIOUS).map((each) => each.question) };
  }

  #cut(turn) {
    const at = this.turns.indexOf(turn);
    if (at >= 0) this.turns.splice(at).forEach((each) => (each.leave(), each.element.remove()));
  }

  /** Stops what goes on, and ends work that was promised. */
  halt() {
    if (!this.turns.at(-1)?.cancel()) this.stop();
  }

  /** Waits for nothing any more. Work that was promised goes on. */
  stop() {
    this.#stopping?.abort();
    this.#stopping = null;
  }

  /** Asks for nothing any more, not even how work gets on. */
  leave() {
    this.stop();
    this.turns.forEach((each) => each.leave());
  }

  // Showing

  #show() {
    const isBusy = this.#stopping !== null;
    const label = this.say(isBusy ? "stop" : "send");
    clear(this.button).append(icon(isBusy ? "stop" : "send"));
    Object.assign(this.button, {
      type: isBusy ? "button" : "submit",
      title: label,
      onclick: isBusy ? () => this.halt() : null,
    });
    this.button.setAttribute("aria-label", label);
    this.root.classList.toggle("busy", isBusy);
    this.root.classList.toggle("talking", this.turns.length > 0);
    this.starters.hidden = this.turns.length > 0;
    this.options.changed?.(this);
  }

  #reveal(turn) {
    const { scroller } = this.options;
    if (scroller) scroller.scrollTo({ top: turn.element.offsetTop - 12 });
    else turn.element.scrollIntoView({ block: "start" });
    this.input.value = "";
    this.#grow();
    if (matchMedia("(hover: hover)").matches) this.input.focus({ preventScroll: true });
  }

  cards(turn) {
    const tell = (deed) => (turn.deed(deed), this.keep());
    return {
      say: this.say,
      origin: this.options.origin,
      outside: this.options.outside,
      images: this.options.images,
      act: (action, item) =>
        act(action, item, { wire: this.wire, say: this.say, host: this.root, tell, setKey: this.setKey }),
    };
  }

  title(collection) {
    return this.options.collections.find((each) => each.name === collection)?.title ?? collection;
  }

  withoutFeedback() {
    this.hasFeedback = false;
    this.turns.forEach((each) => each.tools());
  }

  // Keeping

  keep() {
    if (!this.turns.length) return;
    const isKept = this.history.keep({
      id: this.id,
      title: this.turns[0].data.question.slice(0, 120),
      turns: this.turns.filter((each) => each.data.done).map((each) => each.data),
    });
    this.#tellKept(isKept);
    this.options.kept?.(this.id);
  }

  #tellKept(isKept) {
    this.unkept?.remove();
    this.unkept = isKept ? null : el("p", { class: "faint", text: this.say("notKept"), attrs: { role: "status" } });
    if (this.unkept) this.log.append(this.unkept);
  }

  /** Begins anew, or with a conversation that was kept. */
  open(conversation = null) {
    this.leave();
    this.#unedit();
    clear(this.log);
    this.id = conversation?.id ?? newId();
    this.turns = (conversation?.turns ?? []).map((data) => new Turn({ ...data, done: true }, this));
    this.log.append(...this.turns.map((each) => each.element));
    this.#show();
    if (this.turns.length) this.#reveal(this.turns.at(-1));
    else this.input.focus({ preventScroll: true });
  }
}

const defaults = {
  origin: location.origin, // of the site
  chat: "/chat", // where it has its chat
  site: "", // what it is called
  collections: [], // {name, title}
  collection: "", // to look in, at first
  mode: "summarize", // list, summarize or generate, at first
  say: null, // the words here
  starters: [], // questions to begin with
  answers: "", // the language of answers; as the question if empty
  placeholder: "",
  outside: false, // on a page of somebody else
  images: [], // hosts elsewhere whose pictures may be loaded; "https:" for all
  scroller: null, // what scrolls, if it is not the window
  changed: null, // called when a question begins or ends
  kept: null, // called with the id of what was kept
};

function newId() {
  return `${Date.now().toString(36)}${Math.random().toString(36).slice(2, 8)}`;
}

function broken(error, say, outside) {
  if (error instanceof Refusal)
    return { message: error.message, status: error.status, retryAfter: error.retryAfter, body: error.body };
  return { message: say(outside ? "blocked" : "offline"), code: "OFFLINE", body: { detail: "" } };
}

// To have found no more is none.
function isTrouble(event, data) {
  return event === "error" && data.error?.code !== "NO_RESULTS";
}

// What a citation leads to, before one goes there.
class Preview {
  constructor(root) {
    this.node = el("div", {
      id: "chat-preview",
      class: "preview",
      attrs: { role: "tooltip" },
      hidden: true,
      onpointerenter: () => clearTimeout(this.leaving),
      onpointerleave: () => this.hideSoon(),
    });
    this.root = root;
  }

  get isShown() {
    return !this.node.hidden;
  }

  show(anchor, content) {
    this.hide();
    this.anchor = anchor;
    anchor.setAttribute("aria-describedby", this.node.id);
    this.node.replaceChildren(...content);
    this.root.append(this.node);
    this.node.hidden = false;
    const at = anchor.getBoundingClientRect();
    const frame = this.root.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.left - 12, innerWidth - this.node.offsetWidth - 8));
    const isBelow = at.bottom + this.node.offsetHeight + 12 < innerHeight;
    const top = isBelow ? at.bottom + 6 : at.top - this.node.offsetHeight - 6;
    Object.assign(this.node.style, {
      left: `${left - frame.left}px`,
      top: `${top - frame.top + this.root.scrollTop}px`,
    });
  }

  // Time enough to go from the citation to what it shows.
  hideSoon() {
    clearTimeout(this.leaving);
    this.leaving = setTimeout(() => this.hide(), 250);
  }

  hide() {
    clearTimeout(this.leaving);
    this.anchor?.removeAttribute("aria-describedby");
    this.node.hidden = true;
  }
}
