// The audit trail in sentences, newest first: who did what when, and what was written down of it.

import { el, icon } from "./dom.js";
import { empty, plain, wrong } from "./desk-parts.js";

const MOST = 500; // lines that are shown at all
const PAGE = 100; // lines that are shown at first, and again with each look further back
const STEP = "record_execution_step";
const MOMENT = { dateStyle: "medium", timeStyle: "medium" };
const TAMPERED = "Keep the files of the store as they are, and find out who wrote to it.";

// What each event says, of its body and of how callers and operations are written.
const SENTENCES = {
  CONFIRMATION_REQUIRED: ({ caller, wish }) => [caller, " wants to ", wish, ". Somebody else has to agree."],
  CONFIRMATION_GRANTED: ({ caller, by, wish }) => [by, " agreed that ", caller, " may ", wish, "."],
  CONFIRMATION_REFUSED: ({ caller, by, wish }) => [by, " refused that ", caller, " may ", wish, "."],
  TOKEN_VALIDATED: ({ caller, by, wish }) => [caller, " used what ", by, " had agreed to: to ", wish, "."],
  TOKEN_REJECTED: ({ caller }) => [caller, " came with a confirmation that does not hold."],
  TOKEN_REVOKED: ({ caller }) => ["What ", caller, " was waiting for is void: its session has ended."],
  APPROVAL_REFUSED: ({ caller }) => [caller, " tried to decide for others, and may not."],
  SELF_APPROVAL_REFUSED: ({ caller }) => [caller, " tried to agree to what it wants itself."],
  OPERATION_CLEARED: ({ caller, wish }) => [caller, " was allowed to ", wish, "."],
  OPERATION_DENIED: ({ caller, wish, body }) => [
    caller,
    " was not allowed to ",
    body.operation ? wish : "change anything",
    ".",
  ],
  STEP_REPORTED: ({ caller }) => [caller, " reported its next step."],
  EXECUTION_STARTED: ({ caller, agent }) => [caller, " began to work as ", agent, "."],
  EXECUTION_COMPLETED: ({ caller, agent }) => [agent, " of ", caller, " is done."],
  EXECUTION_CANCELLED: ({ caller, agent, by, body }) =>
    body.by ? [by, " ended ", agent, " of ", caller, "."] : [agent, " of ", caller, " was ended."],
  EXECUTION_FAILED: ({ caller, agent }) => [agent, " of ", caller, " failed."],
  AGENT_BLOCKED: ({ caller, agent }) => [caller, " was blocked before a step of ", agent, "."],
  VERIFICATION_REQUIRED: ({ caller, agent }) => ["A step of ", agent, " of ", caller, " waits for a code."],
  CODE_ISSUED: ({ caller, by }) => [by, " made a fresh code for a step of ", caller, "."],
  VERIFIED: ({ caller, agent, by }) => [by, " verified the step of ", agent, " of ", caller, "."],
  VERIFICATION_FAILED: ({ caller, other }) => [caller, " entered a wrong code for ", other, "."],
  VERIFICATION_REFUSED: ({ caller }) => [caller, " entered too many wrong codes, and has to wait."],
  TASK_CANCELLED: ({ caller, by, wish }) => [by, " stopped what ", caller, " had begun: to ", wish, "."],
  ADMIN_OVERRIDE: ({ caller, by }) => [by, " released ", caller, " without a code."],
};

// What the site says briefly of why something was refused. What agents say as a reason stays as it is.
const REASONS = {
  __proto__: null,
  paused: "A step of it waits for a person.",
  blocked: "It is blocked.",
  "no reported step": "It has to report a step first, and had not.",
  "rate limit": "There were too many in a short time.",
};

const GROUPS = [
  ["", "Everything", /(?:)/],
  ["decided", "Decided by people", /GRANTED|CONFIRMATION_REFUSED|^VERIFIED|OVERRIDE|CODE_ISSUED|TASK|CANCELLED BY/],
  ["waiting", "Waiting for people", /REQUIRED|BLOCKED/],
  ["refused", "Refused or blocked", /DENIED|REFUSED|REJECTED|REVOKED|FAILED|BLOCKED/],
  ["agents", "Agents and their steps", /^EXECUTION|^STEP/],
  ["done", "Let through", /CLEARED|VALIDATED/],
];

const KINDS = [
  [/OVERRIDE|GRANTED|VERIFIED|COMPLETED|CLEARED|VALIDATED/, "good", "check"],
  [/DENIED|REJECT|REFUSED|BLOCKED|FAIL/, "bad", "close"],
  [/REQUIRED|ISSUED|REVOKED|CANCELLED/, "warn", "clock"],
];

function sentence(line, names) {
  const { body } = line;
  const by = /(?:^| )(\S+:\S+)$/.exec(body.by ?? "")?.[1] ?? body.by;
  const told = SENTENCES[line.event];
  if (!told) return [plain(line.event.toLowerCase().replaceAll("_", " ")), "."];
  return told({
    body,
    caller: names.shown(body.caller ?? "somebody"),
    by: by && by !== "site" ? names.shown(by) : "The site",
    other: names.shown(body.agent ?? "nobody"),
    agent: body.agent ? el("strong", {}, plain(body.agent)) : "an agent",
    wish: body.operation === STEP ? "take a step" : ["call ", el("code", {}, plain(body.operation ?? "something"))],
  });
}

// Why, in the words of who said it.
function reasons({ hint, reasons: several, reason, note, score, outcome }) {
  return [
    hint ? el("p", { class: "quoted mono" }, plain(hint)) : null,
    note ? el("p", { class: "quoted" }, plain(note)) : null,
    several?.length || reason
      ? el("p", { class: "faint" }, plain(several?.join("; ") ?? REASONS[reason] ?? reason))
      : null,
    score === undefined
      ? null
      : el(
          "p",
          { class: "faint" },
          `Risk ${score} of 100`,
          outcome ? [". The step before: ", plain(outcome)] : null,
          ".",
        ),
  ];
}

function everything(line) {
  const { seq, at, event, body, before, digest } = line;
  return el(
    "dl",
    {},
    Object.entries({ line: seq, at, event, ...body, digest, before: before || "nothing" }).flatMap(([name, value]) => [
      el("dt", {}, plain(name)),
      el("dd", { class: "mono" }, plain(typeof value === "object" ? JSON.stringify(value) : value)),
    ]),
  );
}

function entry(line, names) {
  const [, kind, drawing] = KINDS.find(([pattern]) => pattern.test(line.event)) ?? ["", "", "play"];
  const written = el(
    "details",
    { ontoggle: () => written.querySelector("dl") ?? written.append(everything(line)) },
    el(
      "summary",
      { class: "faint" },
      `Line ${line.seq}, `,
      el("time", { dateTime: line.at, text: new Date(line.at).toLocaleString([], MOMENT) }),
    ),
  );
  return el(
    "li",
    { class: `line ${kind}` },
    icon(drawing),
    el("div", { class: "grow" }, el("p", {}, sentence(line, names)), reasons(line.body), written),
  );
}

/** The newest line's number. The trail only grows and has no gaps, so that halving finds its end. */
async function lastLine(api) {
  const exists = async (seq) => (await api.get(`audit?after=${seq - 1}&limit=1`)).lines.length > 0;
  let from = 0,
    to = 1024;
  while (await exists(to)) [from, to] = [to, to * 4];
  while (to - from > 1) {
    const middle = Math.floor((from + to) / 2);
    if (await exists(middle)) from = middle;
    else to = middle;
  }
  return from;
}

export function audit(api) {
  const lines = []; // oldest first, without gaps
  let begun = false;
  const shown = el("ol", { class: "trail", attrs: { "aria-label": "Audit trail, newest first", reversed: true } });
  const group = el(
    "select",
    { attrs: { "aria-label": "Show only" }, onchange: () => show() },
    GROUPS.map(([value, text]) => el("option", { value, text })),
  );
  const words = el("input", {
    type: "search",
    placeholder: "Name, operation, word…",
    attrs: { "aria-label": "Only lines with" },
    oninput: () => show(),
  });
  const count = el("span", { class: "faint", attrs: { role: "status" } });
  const chain = el("p", { class: "note", attrs: { role: "status" } });
  const check = el(
    "button",
    { class: "small", type: "button", onclick: () => checkAll() },
    icon("shield"),
    "Check the whole trail",
  );
  const older = el("button", { type: "button", onclick: () => lookBack() }, icon("history"), "Older lines");
  const full = el("span", {
    class: "faint",
    text: `No more than ${MOST} lines are shown. portico approve --audit prints all.`,
    hidden: true,
  });
  const none = empty(
    "Nothing is written down yet.",
    "Every decision, refusal, step and code becomes a line here, which nobody can change or remove.",
  );
  const unlike = empty("No line is like that.", "Show everything, or look at older lines.");
  const element = el(
    "div",
    {},
    el("div", { class: "filter" }, group, words, el("span", { class: "grow" }), check),
    chain,
    count,
    shown,
    none,
    unlike,
    el("p", {}, older, full),
  );

  function fits(line, pattern, wanted) {
    if (!pattern.test(line.body.by ? `${line.event} BY` : line.event)) return false;
    if (!wanted) return true;
    const { caller, by } = line.body;
    const text = [
      line.seq,
      line.event.replaceAll("_", " "),
      JSON.stringify(line.body),
      api.names.of(caller),
      api.names.of(by),
    ];
    return text.join(" ").toLowerCase().includes(wanted);
  }

  function show() {
    const pattern = GROUPS.find(([value]) => value === group.value)[2];
    const wanted = words.value.trim().toLowerCase();
    const fitting = lines.filter((each) => fits(each, pattern, wanted)).reverse();
    const open = new Set([...shown.querySelectorAll("details[open]")].map((each) => each.closest("li").value));
    shown.replaceChildren(
      ...fitting.map((each) => {
        const made = entry(each, api.names);
        made.value = each.seq;
        if (open.has(each.seq)) made.querySelector("details").open = true;
        return made;
      }),
    );
    none.hidden = lines.length > 0;
    unlike.hidden = !lines.length || fitting.length > 0;
    const isAll = fitting.length === lines.length;
    count.textContent = isAll ? "" : `${fitting.length} of ${lines.length} lines`;
    const isWhole = !lines.length || lines[0].seq === 1;
    older.hidden = isWhole || lines.length >= MOST;
    full.hidden = isWhole || !older.hidden;
  }

  function tell(text, kind) {
    chain.className = `note ${kind}`;
    chain.replaceChildren(icon(kind === "good" ? "check" : "alert"), " ", text);
  }

  function tellChain() {
    const broken = lines.find(
      (each, place) => place && (each.before !== lines[place - 1].digest || each.seq !== lines[place - 1].seq + 1),
    );
    chain.hidden = !lines.length;
    if (broken) tell(`Line ${broken.seq} does not follow from the one before. ${TAMPERED}`, "bad");
    else if (lines.length) tell(`Lines ${lines[0].seq} to ${lines.at(-1).seq} follow from each other.`, "good");
  }

  async function checkAll() {
    check.setAttribute("aria-disabled", "true");
    try {
      const { problems } = await api.get("audit/check");
      chain.hidden = false;
      if (problems.length) tell(`${problems.slice(0, 3).join(". ")}. ${TAMPERED}`, "bad");
      else tell("The whole trail was checked: nothing is missing or changed.", "good");
    } catch (error) {
      tell(wrong(error), "warn");
    }
    check.removeAttribute("aria-disabled");
  }

  async function lookBack() {
    const first = lines[0].seq;
    const from = Math.max(0, first - 1 - Math.min(PAGE, MOST - lines.length));
    older.setAttribute("aria-disabled", "true");
    try {
      const found = await api.get(`audit?after=${from}&limit=${first - 1 - from}`);
      api.names.learn(found.names);
      if (lines[0].seq === first) lines.unshift(...found.lines);
      show();
      tellChain();
    } catch (error) {
      tell(wrong(error), "warn");
    }
    older.removeAttribute("aria-disabled");
  }

  async function refresh() {
    const after = begun ? (lines.at(-1)?.seq ?? 0) : Math.max(0, (await lastLine(api)) - PAGE);
    const found = await api.get(`audit?after=${after}&limit=1000`);
    api.names.learn(found.names);
    if (begun && !found.lines.length) return;
    begun = true;
    lines.push(...found.lines);
    lines.splice(0, lines.length - MOST);
    show();
    tellChain();
  }
  return { element, refresh, seconds: 4 };
}
