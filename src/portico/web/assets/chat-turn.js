// One question and its answer: shown while it arrives, and again when it is read from the history.

import { announce, clear, copy, el, icon, iconButton, said } from "./dom.js";
import { brief, card, facts, kindOf, shownValue, toldBy } from "./cards.js";
import { elicitation, pause, problem, progress } from "./chat-forms.js";

const MAX_ANSWER = 20000;
const LONG = 3000; // characters from which an answer is folded
const PAGE = 10; // items that come at once
const RATED = 20; // items that an opinion names
const FAILURES = 3; // that a look at a task may have, one after the other
const FEW = 3; // items that a piece of a text speaks of
const TITLES = new Set(["SearchSummary", "Summary"]);

/** What is known of a turn before anything was answered. */
export function newTurn(question, asked) {
  return { question, asked, text: "", cites: [], items: [], deeds: [], notes: [], at: new Date().toISOString() };
}

export class Turn {
  #cards = new Map(); // by id
  #promised = null; // the token of work that is waited for
  #leaving = new AbortController();
  #trouble = []; // what is shown of an error, or asked back

  constructor(data, chat) {
    this.data = data;
    this.chat = chat;
    this.say = chat.say;
    this.parts = {};
    for (const name of ["chips", "text", "notes", "extra", "tools", "next"])
      this.parts[name] = el("div", { class: `turn-${name}` });
    // What is read aloud is the answer, not every card as it arrives.
    this.parts.items = el("div", { class: "turn-items", attrs: { "aria-live": "off" } });
    this.parts.tools.setAttribute("aria-live", "off");
    this.parts.text.setAttribute("aria-busy", "false"); // read aloud as it comes
    const { chips, text, notes, extra, tools, next, items } = this.parts;
    this.question = el(
      "div",
      { class: "turn-question" },
      el("h2", {}, el("span", { class: "hidden", text: `${this.say("you")}: ` }), said(brief(data.question, 2000))),
    );
    this.side = el("div", { class: "turn-side" }, chips, text, notes, extra, tools, next);
    this.element = el(
      "section",
      { class: "turn", attrs: { "aria-label": brief(data.question, 80) } },
      this.question,
      el("div", { class: "turn-answer" }, this.side, items),
    );
    if (data.done) this.restore();
    else this.wait();
  }

  wait() {
    this.element.setAttribute("aria-busy", "true");
    clear(this.parts.text).append(
      el(
        "div",
        { class: "waiting", attrs: { role: "status" } },
        el("span", { class: "hidden", text: this.say("looking") }),
        el("i"),
        el("i"),
        el("i"),
      ),
    );
  }

  restore() {
    const { items, deeds } = this.data;
    items.forEach(({ item, place }) => this.place(item, place));
    this.data.deeds = [];
    deeds.forEach((deed) => this.deed(deed));
    this.understand();
    this.finish(true);
  }

  // Events of an answer

  apply(event, data) {
    const meta = data._meta ?? {};
    const told = this.data;
    if (meta.understood) Object.assign(told, { understood: meta.understood, standalone: meta.decontextualized_query });
    if (event === "start") this.understand();
    if (event === "text") this.piece(String(data.text ?? ""), [].concat(data.citations ?? []));
    if (event === "result") this.result(data.item ?? {}, data.index ?? 0);
    // What the end repeats of it says less.
    if (event === "error" || (data.error && !told.error))
      told.error = { ...data.error, retryAfter: data.retryAfter ?? data.error?.retry_after, status: data.status };
    if (data.elicitation) told.elicitation = data.elicitation;
    if (data.promise) told.promise = data.promise;
    if (event !== "complete") return;
    Object.assign(told, {
      session: meta.session_context ?? told.session,
      notes: meta.notes ?? [],
      cost: meta.cost,
      type: meta.response_type,
      followups: meta.followups,
    });
  }

  result(item, index) {
    const isOurs = !item["@id"]; // an item may call itself a summary, or done: it does not speak for the site
    if (isOurs && TITLES.has(kindOf(item))) return this.whole(String(item.text ?? ""), item.citations ?? []);
    if (isOurs && item.actionStatus && "name" in item)
      return this.deed({ name: item.name, result: item.result, items: item.object });
    const place = (this.data.base ?? 0) + index;
    this.data.items.push({ item, place });
    this.place(item, place);
  }

  place(item, place) {
    const id = item["@id"] ? `${item["@id"]} ${item.url}` : String(place); // collections may have the same ids
    if (this.#cards.has(id)) return;
    const following = [...this.#cards.values()]
      .filter((each) => each.place > place)
      .sort((a, b) => a.place - b.place)[0];
    const made = { item, place, node: card(item, this.#cards.size + 1, this.chat.cards(this)) };
    this.#cards.set(id, made);
    this.element.classList.add("found");
    this.parts.items.insertBefore(made.node, following?.node ?? this.parts.items.querySelector(":scope > .more"));
    if (following)
      this.ordered().forEach((each, at) => (each.node.querySelector(".item-number").textContent = String(at + 1)));
  }

  ordered() {
    return [...this.#cards.values()].sort((a, b) => a.place - b.place);
  }

  // The text, with living citations

  piece(said, ids) {
    const text = (this.data.text + said).trimStart().slice(0, MAX_ANSWER);
    // What relies on many has only looked through them.
    const end = ids.length > FEW ? undefined : text.trimEnd().length;
    Object.assign(this.data, { text, cites: this.data.cites.concat(ids.map((id) => ({ id, end }))) });
    this.write();
  }

  whole(text, ids) {
    const isKnown = text === this.data.text.trim(); // and where its citations stand, too
    Object.assign(this.data, { text: text.slice(0, MAX_ANSWER), cites: isKnown ? this.data.cites : ids });
    this.write();
  }

  write() {
    const { cites, done } = this.data;
    const text = this.data.text.trimEnd();
    const found = this.ordered();
    const marks = markers(text, found, [].concat(cites), done);
    const shown = paragraphs(text, marks, (at) => this.citation(found[at], at + 1));
    const isLong = text.length > LONG && !this.data.open;
    const open = () => ((this.data.open = true), this.write());
    if (isLong)
      shown.push(el("button", { class: "small unfold", type: "button", text: this.say("longText"), onclick: open }));
    this.parts.text.classList.toggle("long", isLong);
    become(this.parts.text, shown);
  }

  citation({ item, node }, number) {
    const name = brief(item.name, 120);
    const button = el("button", {
      class: "cite",
      type: "button",
      attrs: { "aria-label": this.say("sources", { number, name }) },
      text: String(number),
    });
    const go = () => {
      this.chat.preview.hide();
      node.scrollIntoView({ block: "nearest" });
      node.focus({ preventScroll: true });
      node.classList.remove("lit");
      requestAnimationFrame(() => node.classList.add("lit"));
    };
    const { preview } = this.chat;
    const show = () => preview.show(button, previewed(item, this.say));
    button.addEventListener("click", go);
    for (const each of ["pointerenter", "focus"]) button.addEventListener(each, show);
    button.addEventListener("pointerleave", () => preview.hideSoon());
    button.addEventListener("blur", () => preview.hide());
    return button;
  }

  // What was understood

  understand() {
    const { constraints = [], collections = [] } = this.data.understood ?? {};
    const chips = constraints.slice(0, 12).map((each) => this.chip(each));
    const titles =
      collections.length === 1
        ? [el("li", { class: "chip quiet" }, said(brief(this.chat.title(collections[0]), 60)))]
        : [];
    clear(this.parts.chips);
    if (chips.length || titles.length)
      this.parts.chips.append(
        el("ul", { class: "chips", attrs: { "aria-label": this.say("understood") } }, titles, chips),
      );
  }

  chip({ says, words }) {
    const text = brief(says, 120);
    const again = without(this.data, words);
    const label = this.say("without", { what: text });
    const remove =
      again === null
        ? null
        : el(
            "button",
            {
              type: "button",
              title: label,
              attrs: { "aria-label": label },
              onclick: () => this.chat.ask(again, { replace: this, alone: true }),
            },
            icon("close"),
          );
    return el("li", { class: "chip" }, said(text), remove);
  }

  // The end

  async settle(signal) {
    const title = brief(this.data.promise.message, 200) || this.say("working");
    const work = progress(title, this.say, () => this.cancel());
    clear(this.parts.text);
    this.parts.extra.append(work.element);
    try {
      while (this.data.promise) {
        const { token, progress: fraction, message } = this.data.promise;
        this.#promised = token;
        work.show(Number(fraction) || 0, message);
        await pause(signal);
        this.data.promise = null;
        await this.chat.wire.settle(token, "checkin", (...event) => this.apply(...event), signal);
      }
    } finally {
      this.#promised = null;
      work.end();
    }
  }

  /** Ends work that is waited for. Whether there was any. */
  cancel() {
    const token = this.#promised;
    if (!token) return false;
    this.data.cancelled = true;
    this.chat.wire.settle(token, "cancel", () => {}).catch(() => {});
    this.chat.stop();
    return true;
  }

  /** Everything has arrived, or nothing more will. */
  finish(isOld = false) {
    const { data, say } = this;
    data.done = true;
    this.element.removeAttribute("aria-busy");
    if (data.text) this.write();
    else clear(this.parts.text);
    const notes = data.notes
      .filter((each) => each !== data.error?.message)
      .map((each) => el("p", { class: "faint" }, said(brief(each, 400))));
    clear(this.parts.notes).append(...notes);
    if (data.cancelled || data.stopped)
      this.parts.notes.append(el("p", { class: "faint", text: say(data.cancelled ? "cancelled" : "stopped") }));
    this.refused();
    this.elicit();
    this.tools();
    this.more();
    if (!isOld) this.tell();
  }

  refused() {
    const { error } = this.data;
    this.#trouble.splice(0).forEach((each) => each.remove());
    if (!error) return;
    if (error.code === "NO_RESULTS" || error.code === "CANCELLED") {
      this.parts.text.append(el("p", {}, said(brief(error.message, 600))));
      return;
    }
    const { status, retryAfter, ...rest } = error;
    const shown = { status, retryAfter, message: error.message, body: error.body ?? { error: rest } };
    const again = () => (this.data.base ? this.chat.more(this) : this.again());
    this.#trouble.push(problem(shown, this.say, again, this.chat.setKey));
    this.parts.extra.append(...this.#trouble);
  }

  elicit() {
    const { elicitation: asked, answered } = this.data;
    if (!asked || this.data.error) return;
    if (answered)
      return this.parts.text.append(
        el("p", {}, said(brief(asked.text, 400))),
        el("p", { class: "faint" }, icon("check"), " ", said(answered)),
      );
    const form = elicitation(asked, this.say, (answers, told) => {
      this.data.answered = told;
      form.remove();
      this.elicit();
      this.chat.ask(told, { answers });
    });
    this.#trouble.push(form);
    this.parts.extra.append(form);
  }

  tell() {
    const { data, say } = this;
    const count = data.items.length;
    if (data.error) announce(brief(data.error.message, 300));
    else if (data.greeting) announce(data.text);
    else if (data.elicitation) announce(brief(data.elicitation.text, 300));
    else announce(count === 1 ? say("oneResult") : say("results", { count }));
  }

  // Deeds

  deed(deed) {
    const { say } = this;
    this.data.deeds.push(deed);
    const title = said(brief([labelOf(deed.name), deed.about].filter(Boolean).join(": "), 240));
    const node = el(
      "article",
      { class: "deed card" },
      el("h3", { class: "row" }, icon(deed.task && !deed.result ? "clock" : "check"), title),
    );
    if (deed.result !== undefined && deed.result !== null)
      node.append(shownValue(deed.result, this.chat.wire.origin, toldBy(deed.items)));
    if (deed.error) node.append(el("p", { class: "problem" }, said(brief(deed.error, 400))));
    this.parts.extra.append(node);
    if (deed.task && deed.result === undefined && !deed.error) this.watch(deed, node);
    else announce(say("done"));
  }

  // A task that an action began: watched to its end, and cancelled if that is wanted.
  async watch(deed, node) {
    const { say } = this;
    const cancel = () => this.chat.wire.cancelTask(deed.task.id).catch(() => {});
    const work = progress(labelOf(deed.name), say, cancel);
    node.append(work.element);
    try {
      const task = await this.ended(deed.task, work);
      Object.assign(deed, {
        result: task.result ?? null,
        error: task.error?.message ?? (task.state === "cancelled" ? say("cancelled") : undefined),
      });
    } catch (error) {
      if (this.#leaving.signal.aborted) return;
      deed.error = error.message || say("failed");
    }
    this.data.deeds = this.data.deeds.filter((each) => each !== deed);
    node.remove();
    this.deed(deed);
    this.chat.keep();
  }

  async ended(task, work) {
    const { signal } = this.#leaving;
    for (let failures = 0, seconds = 0; !ENDED.has(task.state); ) {
      work.show(task.progress ?? 0, task.message);
      await pause(signal, seconds);
      try {
        task = await this.chat.wire.task(task.id, signal);
        [failures, seconds] = [0, 0];
      } catch (error) {
        if (signal.aborted || isFinal(error) || (failures += 1) > FAILURES) throw error;
        seconds = error.retryAfter ?? 0;
      }
    }
    return task;
  }

  /** Nobody looks any more: nothing is asked for it. */
  leave() {
    this.#leaving.abort();
  }

  // What can be done with an answer

  tools() {
    const { say, data } = this;
    if (data.greeting) return this.suggest(say("starters"), this.chat.suggested());
    const copying = iconButton("copy", say("copy"), async () => (await copy(this.written())) && announce(say("copied")));
    const again = iconButton("retry", say("retry"), () => this.again());
    const change = iconButton("edit", say("editAsk"), () => this.chat.edit(this));
    const hasAnswer = data.items.length || data.text;
    const isNothing = data.error?.code === "NO_RESULTS"; // which is an answer, too, and no place to end at
    const rating = (hasAnswer || isNothing) && this.chat.hasFeedback ? this.rated() : [];
    clear(this.parts.tools).append(...(hasAnswer ? [copying] : []), again, change, ...rating);
    if (isNothing && !hasAnswer) this.suggest(say("starters"), this.chat.suggested());
    else this.suggest(say("followups"), data.followups ?? []);
  }

  suggest(title, questions) {
    clear(this.parts.next);
    if (!questions.length) return;
    const button = (each) =>
      el("button", { class: "small suggestion", type: "button", onclick: () => this.chat.ask(each) }, said(each));
    this.parts.next.append(
      el("p", { class: "faint small", text: title }),
      el("div", { class: "row" }, questions.map(button)),
    );
  }

  // Answers are good for once: what was asked back is asked again.
  again() {
    const before = this.data.asked.answers ? this.chat.turns[this.chat.turns.indexOf(this) - 1] : null;
    const turn = before ?? this;
    this.chat.ask(turn.data.question, { replace: turn });
  }

  rated() {
    const { say, data } = this;
    if (data.rated) return [el("span", { class: "faint", text: say("thanks") })];
    const up = iconButton("up", say("helpful"), () => this.rate("up"));
    const down = iconButton("down", say("unhelpful"), () => this.comment());
    return [up, down];
  }

  comment() {
    const { say } = this;
    const input = el("input", {
      type: "text",
      maxLength: 1000,
      dir: "auto",
      placeholder: say("whatMissing"),
      attrs: { "aria-label": say("whatMissing") },
    });
    const form = el(
      "form",
      {
        class: "row comment",
        onsubmit: (event) => (event.preventDefault(), form.remove(), this.rate("down", input.value.trim())),
      },
      input,
      el("button", { class: "small primary", type: "submit", text: say("sendIt") }),
    );
    this.parts.tools.querySelector(".comment")?.remove();
    this.parts.tools.append(form);
    input.focus();
  }

  async rate(rating, comment = "") {
    const { data } = this;
    const opinion = {
      rating,
      comment,
      question: data.question.slice(0, 2000),
      answer: (data.text || data.error?.message || "").slice(0, 4000),
      items: data.items
        .map(({ item }) => item["@id"])
        .filter((each) => typeof each === "string")
        .slice(0, RATED),
      conversation: data.session?.conversation_id ?? "",
      turn: this.chat.turns.indexOf(this) + 1,
    };
    try {
      await this.chat.wire.feedback(opinion);
      data.rated = rating;
      this.tools();
      announce(this.say("thanks"));
      this.chat.keep();
    } catch (error) {
      if (error.status === 404) this.chat.withoutFeedback();
      else this.unrated();
    }
  }

  unrated() {
    this.parts.tools.querySelector(".problem")?.remove();
    this.parts.tools.append(el("span", { class: "problem", text: this.say("failed"), attrs: { role: "alert" } }));
  }

  written() {
    const items = this.ordered().map(
      ({ item }, at) => `${at + 1}. ${item.name ?? item["@id"]}${item.url ? ` ${item.url}` : ""}`,
    );
    return [this.data.text, items.join("\n")].filter(Boolean).join("\n\n");
  }

  more() {
    this.parts.items.querySelector(":scope > .more")?.remove();
    const count = this.data.items.length;
    if (!count || count % PAGE || this.data.exhausted || this.data.error) return;
    const go = () => ((button.disabled = true), this.chat.more(this));
    const button = el("button", { class: "more", type: "button", text: this.say("more"), onclick: go });
    this.parts.items.append(button);
  }
}

const ENDED = new Set(["completed", "failed", "cancelled"]);

// What will not be different next time.
function isFinal({ status }) {
  return status >= 400 && status < 500 && status !== 429;
}

function labelOf(name) {
  const words = String(name).replace(/_/g, " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function previewed(item, say) {
  const text = brief(item.description, 180);
  return [
    el("strong", {}, said(brief(item.name, 120))),
    text ? el("p", {}, said(text)) : null,
    el("ul", { class: "item-facts" }, facts(item, say)),
  ].filter(Boolean);
}

/** The question without some of its words; null if they are not in it. */
function without({ question, standalone, understood }, words) {
  const text = [standalone, question].find((each) => words && each?.toLowerCase().includes(words.toLowerCase()));
  if (!text) return null;
  const at = text.toLowerCase().indexOf(words.toLowerCase());
  const left = `${text.slice(0, at)} ${text.slice(at + words.length)}`
    .replace(/\s+/g, " ")
    .replace(/^[\s,;:]+|[\s,;:]+$/g, "")
    .replace(/ ([,;:.?!])/g, "$1");
  return /[\p{L}\p{N}]/u.test(left) ? left : (understood?.collections?.[0] ?? null);
}

// Gives a node these children. What it has already stays: only what is new is seen to come, and read aloud.
function become(node, wanted) {
  const present = [...node.childNodes];
  wanted.forEach((fresh, at) => {
    const old = present[at];
    if (!old) node.append(fresh);
    else if (old.isEqualNode(fresh) || (old.ariaLabel && old.ariaLabel === fresh.ariaLabel)) return;
    else if (old instanceof Text && fresh.data?.startsWith(old.data)) old.appendData(fresh.data.slice(old.length));
    else if (old.cloneNode().isEqualNode(fresh.cloneNode())) become(old, [...fresh.childNodes]);
    else old.replaceWith(fresh);
  });
  present.slice(wanted.length).forEach((each) => each.remove());
}

// Where citations stand: where the text has their number, else behind the name of the item, else behind the piece
// that relies on it, else at the end.
function markers(text, found, cites, isWhole) {
  const marks = [];
  const rest = new Set();
  for (const each of text.matchAll(/ ?\[([^\]]{1,200})\]/g)) {
    const at = /^\d+$/.test(each[1]) ? Number(each[1]) - 1 : found.findIndex(({ item }) => item["@id"] === each[1]);
    if (found[at]) marks.push({ from: each.index, to: each.index + each[0].length, at });
  }
  for (const cite of cites) {
    const at = found.findIndex(({ item }) => item["@id"] === (cite?.id ?? cite));
    if (at < 0 || marks.some((each) => each.at === at)) continue;
    const name = String(found[at].item.name ?? "");
    const start = name.length > 2 ? text.indexOf(name) : -1;
    const end = start + name.length + (start >= 0 && /[”“"»]/.test(text[start + name.length] ?? "") ? 1 : 0);
    const isFree = start >= 0 && !marks.some((each) => each.from < end && each.to > start);
    const place = isFree ? end : cite.end;
    if (place) marks.push({ from: place, to: place, at });
    else rest.add(at);
  }
  // What an answer speaks of by name needs no list of all that it looked through.
  if (!marks.length && isWhole) marks.push(...[...rest].map((at) => ({ from: text.length, to: text.length, at })));
  return marks.sort((a, b) => a.from - b.from);
}

// Paragraphs and lists of a text. Of other marks there is only **bold**.
function paragraphs(text, marks, cite) {
  const made = [];
  let list = null;
  let at = 0;
  for (const line of text.split("\n")) {
    const inside = marks.filter((each) => each.from >= at && each.from <= at + line.length);
    const item = /^\s*(?:[-*•]|\d+[.)])\s+/.exec(line);
    const skipped = item ? item[0].length : 0;
    const nodes = inline(
      line,
      skipped,
      inside.map((each) => ({ ...each, from: each.from - at, to: each.to - at })),
      cite,
    );
    if (item) (list ??= made[made.push(el("ul")) - 1]).append(el("li", { dir: "auto" }, nodes));
    else if (line.trim() || nodes.length) ((list = null), made.push(el("p", { dir: "auto" }, nodes)));
    at += line.length + 1;
  }
  return made;
}

function inline(line, start, marks, cite) {
  const nodes = [];
  let at = start;
  for (const mark of marks) {
    const before = line.slice(at, Math.max(mark.from, at));
    const last = /\S{1,16}$/.exec(before)?.[0] ?? "";
    // No line begins with a citation: it stays with the word before it.
    nodes.push(
      ...bold(before.slice(0, before.length - last.length)),
      el("span", { class: "cited" }, bold(last), cite(mark.at)),
    );
    at = Math.max(mark.to, at);
  }
  return [...nodes, ...bold(line.slice(at))];
}

function bold(text) {
  return text
    .split(/\*\*([^*]+)\*\*/)
    .map((each, at) => (at % 2 ? el("strong", { text: each }) : each))
    .filter((each) => each !== "");
}
