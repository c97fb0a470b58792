// What a conversation asks of a person: answers to questions, arguments of actions, a yes to what is dangerous.

import { copy, el, icon, labelled, Refusal, said, schemaForm } from "./dom.js";
import { brief, shownValue, toldBy } from "./cards.js";

const HARMLESS = new Set(["safe", "reversible"]);
const POLL_MS = 800;

// Questions that the site asks back

const TYPES = {
  single_select: (each) => ({ type: "string", enum: each.options ?? [] }),
  multi_select: (each) => ({ type: "array", items: { type: "string", enum: each.options ?? [] } }),
  number: () => ({ type: "number" }),
  boolean: (_, say) => ({ enum: [true, false], titles: [say("yes"), say("no")] }),
  free_text: (each) => timed({ type: "string" }, each.text),
};

// What is to be written "as in 2026-12-05T19:00" is a time by the clock of the place, and sent as it is chosen.
function timed(schema, description) {
  const isMoment = schema.type === "string" && !schema.format && /\d{4}-\d\d-\d\dT/.test(description ?? "");
  return isMoment ? { ...schema, format: "date-time", isLocal: true } : schema;
}

/** A form for what was asked back; `answer(answers, written)` gets the answers by id, and the same for people. */
export function elicitation(asked, say, answer) {
  const questions = (asked.questions ?? []).filter((each) => each && typeof each.id === "string");
  const properties = Object.fromEntries(
    questions.map((each) => [
      each.id,
      {
        ...(TYPES[each.type] ?? TYPES.free_text)(each, say),
        title: brief(each.text, 300),
        default: each.default ?? undefined,
      },
    ]),
  );
  const form = schemaForm(
    { type: "object", properties, required: questions.length === 1 ? [questions[0].id] : [] },
    {},
    say.own,
  );
  const submit = () => {
    const answers = form.read();
    if (answers) answer(answers, writtenAnswers(answers, questions, say));
  };
  const element = el(
    "form",
    { class: "asked-back card", noValidate: true, onsubmit: (event) => (event.preventDefault(), submit()) },
    el("p", { class: "asked-text" }, said(asked.text ?? "")),
    form.element,
    el("div", { class: "row" }, el("button", { class: "primary", type: "submit", text: say("reply") })),
  );
  // One question with a choice of one is answered by choosing.
  const isOne = questions.length === 1 && ["single_select", "boolean"].includes(questions[0].type);
  if (isOne)
    element.addEventListener(
      "click",
      (event) => event.detail > 0 && event.target.matches?.("input[type=radio]") && submit(),
    );
  return element;
}

function writtenAnswers(answers, questions, say) {
  const told = (value) =>
    Array.isArray(value) ? value.join(", ") : value === true ? say("yes") : value === false ? say("no") : String(value);
  const pairs = questions.filter((each) => each.id in answers).map((each) => [each, told(answers[each.id])]);
  if (pairs.length === 1) return pairs[0][1];
  return pairs.map(([each, value]) => `${labelled(each.id)}: ${value}`).join(" · ") || "–";
}

// Work that takes longer

/** Shows how work gets on: `{element, show(fraction, message), end()}`. */
export function progress(title, say, cancel) {
  const bar = el("progress", { max: 1, attrs: { "aria-label": title } });
  const message = el("p", { class: "faint work-message", attrs: { "aria-live": "polite" } });
  const stop = el("button", {
    class: "small",
    type: "button",
    text: say("cancel"),
    onclick: () => ((stop.disabled = true), cancel()),
  });
  const element = el(
    "div",
    { class: "work card" },
    el(
      "div",
      { class: "row" },
      el("span", { class: "spin", attrs: { "aria-hidden": "true" } }),
      el("strong", { class: "grow" }, said(title)),
      stop,
    ),
    bar,
    message,
  );
  const show = (fraction, text) => {
    if (fraction > 0) bar.value = Math.min(fraction, 1);
    message.textContent = brief(text, 300);
  };
  return { element, show, end: () => element.remove() };
}

/** Waits before something is looked at again, at least for some seconds. */
export function pause(signal, seconds = 0) {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const stop = () => (clearTimeout(waiting), reject(signal.reason));
    const go = () => (signal.removeEventListener("abort", stop), resolve());
    const waiting = setTimeout(go, Math.max(POLL_MS, seconds * 1000));
    signal.addEventListener("abort", stop, { once: true });
  });
}

// Actions on items

/** Asks for what an action still needs, runs it, and tells what came of it: `tell(deed)`. */
export async function act(action, item, around) {
  const { wire, say, host, tell, setKey } = around;
  const dialog = el("dialog", {
    class: "action",
    attrs: { "aria-label": labelled(action.name) },
    onclose: () => dialog.remove(),
  });
  host.append(dialog);
  dialog.append(el("p", { class: "faint", text: say("looking") }));
  dialog.showModal();
  try {
    const operation = (await wire.operations()).get(action.name);
    if (!operation) throw new Refusal(404, null, null);
    fill(dialog, new Step(action, item, operation, { wire, say, tell, dialog, setKey }).form());
  } catch (error) {
    const again = () => (dialog.close(), act(action, item, around));
    fill(
      dialog,
      problem(error, say, again, setKey),
      el("div", { class: "row" }, el("button", { type: "button", text: say("close"), onclick: () => dialog.close() })),
    );
  }
}

function fill(dialog, ...content) {
  dialog.replaceChildren(...content.flat().filter(Boolean));
  const first = dialog.querySelector("input:not([type=hidden]), select, textarea, button.primary");
  (first ?? dialog.querySelector("button") ?? dialog).focus();
}

class Step {
  constructor(action, item, operation, around) {
    Object.assign(this, { action, item, operation, ...around });
    this.given = action.params ?? {};
    this.key = crypto.randomUUID?.() ?? String(Math.random()).slice(2);
  }

  get title() {
    return labelled(this.action.name);
  }

  // What the item fills in is not asked for again.
  schema() {
    const whole = this.operation.params ?? {};
    const target = whole.$ref
      ? whole.$ref
          .replace(/^#\//, "")
          .split("/")
          .reduce((at, step) => at?.[step], whole)
      : whole;
    const open = Object.entries(target?.properties ?? {})
      .filter(([name]) => !(name in this.given))
      .map(([name, each]) => [name, timed(each, each.description)]);
    return {
      ...target,
      $defs: whole.$defs,
      properties: Object.fromEntries(open),
      required: (target?.required ?? []).filter((name) => !(name in this.given)),
    };
  }

  form(values = {}) {
    const { say, dialog } = this;
    const form = schemaForm(this.schema(), values, say.own);
    const isDangerous = !HARMLESS.has(this.operation.danger);
    const go = (event) => {
      event.preventDefault();
      const read = form.read();
      if (read) fill(dialog, isDangerous ? this.sure(read) : this.waiting(read));
    };
    return el(
      "form",
      { noValidate: true, onsubmit: go },
      el("h2", {}, said(this.title)),
      el("p", {}, el("strong", {}, said(brief(this.item.name, 200)))),
      el("p", { class: "faint" }, said(brief(this.operation.description, 400))),
      form.element,
      el(
        "div",
        { class: "row" },
        this.closing(say("cancel")),
        el("button", { class: "primary", type: "submit", text: this.title }),
      ),
    );
  }

  closing(text) {
    return el("button", { type: "button", text, onclick: () => this.dialog.close() });
  }

  sure(values) {
    const { say, dialog } = this;
    return [
      el("h2", { text: say("confirm") }),
      el("p", { class: "note bad" }, said(`${this.title}: ${brief(this.item.name, 200)}`), el("br"), say("cannotUndo")),
      el(
        "div",
        { class: "row" },
        el("button", { type: "button", text: say("back"), onclick: () => fill(dialog, this.form(values)) }),
        el("button", {
          class: "danger",
          type: "button",
          text: say("doIt"),
          onclick: () => fill(dialog, this.waiting(values)),
        }),
      ),
    ];
  }

  waiting(values) {
    this.run(values);
    return [
      el("h2", {}, said(this.title)),
      el("p", { class: "row" }, el("span", { class: "spin" }), this.say("working")),
    ];
  }

  async run(values) {
    const { wire, say, dialog } = this;
    try {
      const done = await wire.run(this.action.name, { ...this.given, ...values }, this.key);
      const { name, offers, priceCurrency } = this.item;
      const items = [{ "@id": this.item["@id"], name, offers, priceCurrency }];
      this.tell({ name: this.action.name, about: brief(name, 200), result: done.result, task: done.task, items });
      if (done.task) return dialog.close();
      fill(
        dialog,
        el("h2", { class: "row" }, icon("check"), say("done")),
        shownValue(done.result ?? {}, wire.origin, toldBy(items)),
        el("div", { class: "row" }, this.closing(say("close"))),
      );
    } catch (error) {
      const again = () => fill(dialog, this.waiting(values));
      const change = el("button", {
        type: "button",
        text: say("back"),
        onclick: () => fill(dialog, this.form(values)),
      });
      fill(
        dialog,
        problem(error, say, again, this.setKey),
        el("div", { class: "row" }, this.closing(say("close")), change),
      );
    }
  }
}

// What went wrong

const typeOf = (body) =>
  String(body?.type ?? body?.error?.code ?? "")
    .split(":")
    .pop();
const PARTICULAR = new Set([400, 409, 422]); // what the site says of these is worth reading in any language
const CONFIRM = new Set(["ConfirmationNeeded", "CONFIRMATION_NEEDED"]);

const WHY = {
  400: "wrong", 403: "denied", 404: "gone", 409: "conflict", 413: "tooLong", 422: "wrong", 429: "busy",
  500: "broken", 502: "broken", 503: "broken", 504: "late",
  CONFLICT: "conflict", FORBIDDEN: "denied", INTERNAL_ERROR: "broken", INVALID_QUERY: "wrong", NOT_FOUND: "gone",
  RATE_LIMITED: "busy", TIMEOUT: "late", TOKEN_LIMIT: "tooLong", UNKNOWN_PROMISE: "gone",
};

/** What went wrong, and what can be done about it. */
export function problem(error, say, again, setKey) {
  const type = typeOf(error.body);
  if (CONFIRM.has(type)) return approval(error.body, say, again);
  if (error.status === 401 && setKey) return keyNeeded(error, say, again, setKey);
  const isNetwork = error instanceof TypeError;
  const own = say.own[WHY[error.status] ?? WHY[type]]; // where the site speaks English alone
  const text = isNetwork ? say(setKey ? "offline" : "blocked") : own || error.message || say("failed");
  const hint = own ? "" : brief(error.body?.hint, 300);
  return el(
    "div",
    { class: "note bad", attrs: { role: "alert" } },
    el("p", {}, el("strong", { text: say("failed") })),
    el("p", {}, said(brief(text, 600))),
    own && PARTICULAR.has(error.status) ? el("p", { class: "faint" }, said(brief(error.message, 400))) : null,
    hint ? el("p", { class: "faint" }, said(hint)) : null,
    again ? retry(error.retryAfter, say, again) : null,
  );
}

/** A button that waits until it makes sense to press it. */
export function retry(seconds, say, again) {
  const button = el("button", { class: "small", type: "button", onclick: again }, icon("retry"));
  const label = el("span");
  button.append(label);
  const count = (left) => {
    button.disabled = left > 0;
    label.textContent = left > 0 ? say("retryIn", { seconds: left }) : say("retry");
    if (left > 0) setTimeout(() => count(left - 1), 1000);
  };
  count(Math.min(Math.ceil(seconds ?? 0), 3600));
  return el("p", {}, button);
}

function approval(body, say, again) {
  const details = body.details ?? body.error?.details ?? body.error ?? {};
  const token = brief(details.token ?? details.confirmation_token, 200);
  const reasons = []
    .concat(details.reasons ?? [])
    .slice(0, 5)
    .map((each) => el("li", {}, said(brief(each, 200))));
  const copying = el(
    "button",
    { class: "small", type: "button", onclick: () => copy(token) },
    icon("copy"),
    say("copy"),
  );
  return el(
    "div",
    { class: "note warn", attrs: { role: "alert" } },
    el("p", {}, el("strong", { class: "row" }, icon("shield"), say("approval"))),
    el("p", { text: say("approvalHow") }),
    reasons.length ? el("ul", {}, reasons) : null,
    token ? el("p", { class: "row" }, `${say("token")}:`, el("code", { class: "token", text: token }), copying) : null,
    el(
      "p",
      { class: "row" },
      again ? el("button", { class: "small", type: "button", onclick: again }, icon("retry"), say("retry")) : null,
    ),
  );
}

function keyNeeded(error, say, again, setKey) {
  const input = el("input", {
    type: "password",
    autocomplete: "off",
    attrs: { "aria-label": say("key") },
    placeholder: say("key"),
  });
  const use = (event) => {
    event.preventDefault();
    setKey(input.value.trim());
    again?.();
  };
  return el(
    "form",
    { class: "note warn", onsubmit: use },
    el("p", {}, el("strong", { text: say("needsKey") })),
    el("p", {}, said(brief(error.message, 300))),
    el("p", { class: "row" }, input, el("button", { class: "primary", type: "submit", text: say("use") })),
    el("p", { class: "faint", text: say("keyHow") }),
  );
}
