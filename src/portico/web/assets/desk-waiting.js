// What waits for a person: calls to agree to, steps to verify, agents to release.

import { announce, copy, el, icon } from "./dom.js";
import { Kept, ago, confirmed, duration, plain, shownParams, state, wrong } from "./desk-parts.js";

/** The panel: {element, show(pending, now)}. `api` is {get, post, names}. */
export function waiting(api, changed) {
  const confirmations = section("To agree to", "A call or a step goes on once somebody else agrees.");
  const challenges = section("To verify", "A step that only a person with its code can release.");
  const blocks = section("Blocked agents", "They change nothing until a person has looked.");
  const nothing = el(
    "div",
    { class: "empty" },
    icon("check"),
    el("p", {}, el("strong", { text: "Nothing waits for you." })),
    el("p", {
      text: "What agents may not do alone appears here: calls that destroy something, and steps that are risky. The title of this tab says how many there are.",
    }),
  );
  const more = el("p", { class: "faint", hidden: true });
  confirmations.element.append(more);
  const lists = [
    [
      confirmations,
      "confirmations",
      new Kept(confirmations.list, { key: (each) => each.token, make: (each) => confirmation(each, api, changed) }),
    ],
    [
      challenges,
      "challenges",
      new Kept(challenges.list, { key: (each) => each.id, make: (each) => challenge(each, api, changed) }),
    ],
    [
      blocks,
      "blocks",
      new Kept(blocks.list, { key: (each) => each.caller, make: (each) => block(each, api, changed) }),
    ],
  ];
  const show = (pending, now) => {
    for (const [part, name, kept] of lists) {
      kept.show(
        [...pending[name]].sort((one, other) => (one.issued ?? one.since).localeCompare(other.issued ?? other.since)),
        now,
      );
      part.element.hidden = kept.isEmpty;
      part.count.textContent = String(pending[name].length);
    }
    more.hidden = !pending.more;
    more.textContent = `${pending.more} more are listed once these are decided.`;
    nothing.hidden = lists.some(([, , kept]) => !kept.isEmpty);
  };
  return {
    element: el(
      "div",
      {},
      lists.map(([part]) => part.element),
      nothing,
    ),
    show,
  };
}

export function waitingCount(pending) {
  // A block has a challenge of its own, mostly: counted once.
  const own = new Set(pending.challenges.map((each) => each.id));
  return (
    pending.confirmations.length +
    pending.more +
    pending.challenges.length +
    pending.blocks.filter((each) => !own.has(each.verification_id)).length
  );
}

function section(title, about) {
  const list = el("div", { class: "stack" });
  const count = el("span", { class: "badge" });
  const head = el("div", { class: "head" }, el("h2", {}, title), count, el("span", { class: "faint", text: about }));
  return { element: el("section", { hidden: true, attrs: { "aria-label": title } }, head, list), list, count };
}

function countdown() {
  const element = el("span", { class: "countdown" });
  return {
    element,
    update(iso, now, over = "expired") {
      const left = (Date.parse(iso) - now) / 1000;
      element.textContent = left > 0 ? `${duration(left)} left` : over;
      element.classList.toggle("soon", left < 60);
    },
  };
}

function who(item, api) {
  const name = item.name || api.names.of(item.caller);
  return [
    name ? el("strong", {}, plain(name)) : null,
    name ? " " : null,
    el("span", { class: "faint mono" }, plain(item.caller)),
  ];
}

function reasons(item) {
  return item.reasons?.length
    ? el(
        "ul",
        {},
        [...new Set(item.reasons)].map((each) => el("li", {}, plain(each))),
      )
    : null;
}

// Runs what a button is for, once at a time, and says what went wrong beside it. The button keeps the focus.
function acting(problem, work) {
  return async (event) => {
    event.preventDefault();
    const button = event.submitter ?? event.currentTarget;
    if (button.getAttribute("aria-disabled") === "true") return;
    button.setAttribute("aria-disabled", "true");
    problem.textContent = "";
    try {
      await work(button.matches(":focus-visible"));
    } catch (error) {
      problem.textContent = wrong(error);
    }
    button.removeAttribute("aria-disabled");
  };
}

// Says what came of it where the buttons were. Who works with the keyboard goes on from there.
function settled(outcome, buttons, text, byKeyboard) {
  outcome.textContent = text;
  outcome.hidden = false;
  if (byKeyboard) outcome.focus();
  buttons.hidden = true;
}

function confirmation(item, api, changed) {
  const isStep = item.what === "step";
  const left = countdown();
  const problem = el("p", { class: "problem", attrs: { role: "alert" } });
  const note = el("input", {
    placeholder: "Note (optional)",
    maxLength: 1000,
    autocomplete: "off",
    attrs: { "aria-label": `Note about ${item.operation}` },
  });
  const outcome = el("p", { class: "note good", hidden: true, tabIndex: -1 });
  const decide = (decision, said) =>
    acting(problem, async (byKeyboard) => {
      const { token, digest } = item; // of what is shown in this card
      await api.post(`confirmations/${encodeURIComponent(token)}`, { decision, digest, note: note.value });
      outcome.className = decision === "approve" ? "note good" : "note";
      settled(outcome, buttons, said, byKeyboard);
      announce(`${item.operation}: ${said}`);
      changed();
    });
  const buttons = el(
    "div",
    { class: "decide" },
    note,
    el("button", { type: "button", onclick: decide("reject", "Rejected. It is told so.") }, icon("close"), "Reject"),
    el(
      "button",
      { type: "button", class: "primary", onclick: decide("approve", "Approved. It may do this once.") },
      icon("check"),
      "Approve",
    ),
  );
  const element = el(
    "article",
    { class: "card case", attrs: { "aria-label": `${item.name} wants ${item.operation}` } },
    el(
      "div",
      { class: "line" },
      el("h3", {}, isStep ? "A step of " : null, plain(isStep ? item.params.agent : item.operation)),
      item.danger ? state(item.danger) : null,
      isStep ? state("step") : null,
      left.element,
    ),
    el("p", {}, who(item, api), isStep ? " wants to take this step:" : " wants to call this:"),
    Object.keys(item.params ?? {}).length
      ? shownParams(item.params)
      : el("p", { class: "faint", text: "No parameters." }),
    reasons(item),
    el("p", { class: "digest faint" }, "Digest of this call: ", el("code", { text: item.digest })),
    buttons,
    outcome,
    problem,
  );
  element.classList.toggle("danger", item.danger === "dangerous");
  const gone = () => {
    if (!outcome.hidden) return;
    outcome.className = "note";
    outcome.textContent = "This is no longer waiting: it was decided, has expired, or its execution has ended.";
    outcome.hidden = false;
  };
  return { element, gone, update: (current, now) => left.update(current.expires, now) };
}

function challenge(item, api, changed) {
  const left = countdown();
  const problem = el("p", { class: "problem", attrs: { role: "alert" } });
  const path = `challenges/${encodeURIComponent(item.id)}`;
  const outcome = el("p", { class: "note good", hidden: true, tabIndex: -1 });
  const input = el("input", {
    placeholder: "Code",
    autocomplete: "off",
    spellcheck: false,
    maxLength: 200,
    class: "mono",
    attrs: { "aria-label": "Code", autocapitalize: "characters" },
  });
  const show = acting(problem, async () => {
    await shownCode(await api.post(`${path}/code`, {}), item);
    input.focus();
  });
  const verify = acting(problem, async (byKeyboard) => {
    const code = input.value.trim();
    if (!code) throw new Error("Enter the code that a person was shown, or have one shown to you");
    input.value = "";
    await api.post(`${path}/verify`, { code });
    settled(outcome, form, "Verified. The agent may go on.", byKeyboard);
    announce(outcome.textContent);
    changed();
  });
  const release = acting(problem, () => released(item.caller, item.agent, api, changed));
  const showing = el("button", { type: "button", onclick: show }, icon("shield"), "Show the code");
  const releasing = item.blocks
    ? el("button", { type: "button", class: "quiet", onclick: release }, "Release without a code…")
    : null;
  const form = el(
    "form",
    { class: "decide", onsubmit: verify },
    input,
    el("button", { type: "submit", class: "primary" }, icon("check"), "Verify"),
    showing,
    releasing,
  );
  const element = el(
    "article",
    { class: "card case danger", attrs: { "aria-label": `A step of ${item.agent}` } },
    el(
      "div",
      { class: "line" },
      el("h3", {}, plain(item.agent)),
      state(item.tier),
      item.blocks ? state("blocked") : null,
      left.element,
    ),
    el("p", {}, "An agent of ", who(item, api), " wants to take this step:"),
    el("div", { class: "hint", tabIndex: 0, attrs: { role: "group", "aria-label": "The step" } }, plain(item.hint)),
    stepCall(item),
    reasons(item),
    form,
    outcome,
    problem,
  );
  return { element, update: (current, now) => left.update(current.expires, now, "its code has expired") };
}

/** The call of this site that a step names, if it names one. */
function stepCall(item) {
  if (!item.operation) return null;
  const named = item.params ?? null;
  return [
    el("p", {}, "It calls ", el("code", {}, plain(item.operation)), named ? ":" : "; its parameters are not named."),
    named && Object.keys(named).length ? shownParams(named) : null,
  ];
}

// The code is on the page while the dialog is open, and nowhere else.
function shownCode(issued, item) {
  return new Promise((settle) => {
    const left = countdown();
    const code = el("p", { class: "code-shown", text: issued.code, attrs: { "aria-label": "The code" } });
    const button = el(
      "button",
      {
        type: "button",
        onclick: async () => {
          const done = await copy(issued.code);
          button.lastChild.textContent = done ? "Copied" : "Select it and copy";
        },
      },
      icon("copy"),
      el("span", { text: "Copy" }),
    );
    const dialog = el(
      "dialog",
      {
        attrs: { "aria-label": "Verification code" },
        onclose: () => {
          clearInterval(ticking);
          code.textContent = "";
          dialog.remove();
          settle();
        },
      },
      el("h2", {}, "Code for ", plain(item.agent)),
      code,
      el(
        "p",
        { class: "faint" },
        "It works once, and only the newest one counts. Enter it yourself, or give it to a person. Never to an agent.",
      ),
      el(
        "div",
        { class: "row" },
        left.element,
        el("span", { class: "grow" }),
        button,
        el("button", { type: "button", class: "primary", text: "Close", onclick: () => dialog.close() }),
      ),
    );
    const tick = () => left.update(issued.challenge.expires, Date.now() + issued.skew);
    const ticking = setInterval(tick, 1000);
    tick();
    document.body.append(dialog);
    dialog.showModal();
  });
}

async function released(caller, agent, api, changed) {
  const text = el(
    "span",
    {},
    "Everything that ",
    el("code", {}, plain(caller)),
    " may do it can do again, without anybody having entered a code.",
  );
  const said = await confirmed({ title: `Release ${agent || caller}?`, text, action: "Release", kind: "danger" });
  if (!said) return;
  await api.post("agents/unblock", { caller, note: said.note });
  announce("Released.");
  changed();
}

function block(item, api, changed) {
  const problem = el("p", { class: "problem", attrs: { role: "alert" } });
  const since = el("span", { class: "countdown" });
  const release = acting(problem, () => released(item.caller, item.agent, api, changed));
  const button = el("button", { type: "button", onclick: release }, icon("retry"), "Release…");
  const element = el(
    "article",
    { class: "card case", attrs: { "aria-label": `${item.agent} is blocked` } },
    el("div", { class: "line" }, el("h3", {}, plain(item.agent)), state("blocked"), since),
    el("p", {}, "No agent of ", who(item, api), " changes anything: ", plain(item.reason.split("; ")[0]), "."),
    el("div", { class: "decide" }, button),
    problem,
  );
  return { element, update: (current, now) => since.replaceChildren(ago(current.since, now)) };
}
