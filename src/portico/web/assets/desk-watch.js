// What happens: agents at work, tasks, the audit trail, sources, feedback, traffic. Nothing here but a reload has an effect.

import { announce, el, icon, said } from "./dom.js";
import { chart, short } from "./charts.js";
import { ago, duration, plain, state, table } from "./desk-parts.js";

const MINUTES = 60;
const MOST = 500; // lines of the trail that are shown at all
const PAGE = 100; // lines of the trail that are shown at first, and again with each look further back

function empty(text) {
  return el("p", { class: "empty", text });
}

function whose(caller, name) {
  return [name ? el("strong", {}, plain(name)) : null, el("span", { class: "faint mono" }, plain(caller))];
}

function progress(share, label) {
  return el("progress", { max: 1, value: share, attrs: { "aria-label": label } });
}

/** Executions and tasks. */
export function work(api) {
  let now = Date.now();
  const runs = table("Agents at work", [
    { label: "Agent", cell: (each) => whose(each.caller, each.execution.element_name) },
    { label: "State", cell: (each) => state(each.execution.status) },
    {
      label: "Steps",
      cell: ({ execution: { progress: at } }) =>
        at ? [`${at.current} of ${at.total}`, progress(at.total ? at.current / at.total : 0, "Steps")] : "",
    },
    { label: "Begun", class: "narrow", cell: (each) => ago(each.execution.started_at, now) },
    { label: "Last heard", cell: (each) => plain(each.execution.progress?.message ?? "") },
  ]);
  const tasks = table("Tasks", [
    {
      label: "Operation",
      cell: (each) => [
        el("strong", { class: "mono" }, plain(each.operation)),
        el("span", { class: "faint mono", text: each.id }),
      ],
    },
    { label: "Caller", cell: (each) => whose(each.caller, each.name) },
    {
      label: "State",
      cell: (each) => [state(each.state), each.state === "running" ? progress(each.progress, "Progress") : null],
    },
    { label: "Begun", class: "narrow", cell: (each) => ago(each.created, now) },
    { label: "Says", cell: (each) => el("span", { class: "clamp" }, plain(each.error || each.message)) },
  ]);
  const noRuns = empty("No agent is at work."),
    noTasks = empty("No tasks yet.");
  const element = el(
    "div",
    {},
    el("div", { class: "head" }, el("h2", { text: "Agents at work" })),
    runs.element,
    noRuns,
    el(
      "div",
      { class: "head" },
      el("h2", { text: "Tasks" }),
      el("span", { class: "faint", text: "The newest 50, of everybody" }),
    ),
    tasks.element,
    noTasks,
  );
  async function refresh() {
    const [{ executions }, found] = [await api.get("executions"), await api.get("tasks?limit=50")];
    now = api.now();
    runs.show(executions);
    tasks.show(found.tasks);
    for (const [part, none, count] of [
      [runs, noRuns, executions.length],
      [tasks, noTasks, found.tasks.length],
    ]) {
      part.element.hidden = !count;
      none.hidden = Boolean(count);
    }
  }
  return { element, refresh, seconds: 2 };
}

// The audit trail

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

const EVENTS = [
  [/UNBLOCK|RELEASED|GRANTED|VERIFIED|COMPLETED|CLEARED/, "good"],
  [/DENIED|REJECT|REFUSED|BLOCKED|FAIL|LOCK/, "bad"],
  [/REQUIRED|ISSUED|PAUSE|CANCELLED|EXPIRED|CHALLENGE/, "warn"],
];

function event(name) {
  const kind = EVENTS.find(([pattern]) => pattern.test(name))?.[1] ?? "";
  return el("span", { class: `badge ${kind}` }, plain(name.toLowerCase().replaceAll("_", " ")));
}

function pairs(body) {
  const shown = Object.entries(body).filter(([name]) => name !== "caller" && name !== "policy");
  return el(
    "div",
    { class: "pairs" },
    shown.map(([name, value]) => {
      const text = typeof value === "string" ? value : Array.isArray(value) ? value.join("; ") : JSON.stringify(value);
      return el("span", {}, el("span", { class: "name", text: `${name.replaceAll("_", " ")} ` }), shortened(text));
    }),
  );
}

// Digests are for programs; of long texts the beginning is enough here.
function shortened(text) {
  const most = /^[\da-f-]{32,}$/.test(text) ? 12 : 160;
  const isLong = text.length > most;
  return el(
    "span",
    { class: most === 12 ? "mono" : "", title: isLong ? text.slice(0, 1000) : "" },
    plain(isLong ? `${text.slice(0, most)}…` : text),
  );
}

export function audit(api) {
  const lines = []; // oldest first, without gaps
  let now = Date.now(),
    wanted = "",
    known = new Set(),
    begun = false;
  const shown = table("Audit trail, newest first", [
    { label: "Line", class: "seq narrow", cell: (each) => String(each.seq) },
    { label: "When", class: "narrow", cell: (each) => ago(each.at, now) },
    { label: "Event", cell: (each) => event(each.event) },
    { label: "Caller", cell: (each) => el("span", { class: "mono" }, plain(each.body.caller ?? each.body.by ?? "")) },
    { label: "About", cell: (each) => pairs(each.body) },
  ]);
  const choice = el(
    "select",
    { attrs: { "aria-label": "Show only" }, onchange: () => ((wanted = choice.value), show()) },
    el("option", { value: "", text: "Every event" }),
  );
  const chain = el("span", { class: "faint grow", attrs: { role: "status" } });
  const check = el(
    "button",
    { class: "small", type: "button", onclick: () => checkAll() },
    icon("shield"),
    "Check the whole trail",
  );
  const older = el("button", { type: "button", onclick: () => lookBack() }, icon("history"), "Older lines");
  const full = el("span", { class: "faint", text: `No more than ${MOST} lines are shown.`, hidden: true });
  const none = empty("Nothing has happened yet that is written down.");
  const element = el(
    "div",
    {},
    el("div", { class: "filter" }, choice, chain, check),
    shown.element,
    none,
    el("p", {}, older, full),
  );

  function show() {
    for (const each of lines) {
      if (known.has(each.event)) continue;
      known.add(each.event);
      choice.append(el("option", { value: each.event, text: each.event.toLowerCase().replaceAll("_", " ") }));
    }
    const fitting = lines.filter((each) => !wanted || each.event === wanted).reverse();
    shown.show(fitting);
    shown.element.hidden = !fitting.length;
    none.hidden = Boolean(fitting.length);
    const isWhole = !lines.length || lines[0].seq === 1;
    older.hidden = isWhole || lines.length >= MOST;
    full.hidden = isWhole || !older.hidden;
  }

  function tellChain() {
    const broken = lines.find(
      (each, place) => place && (each.before !== lines[place - 1].digest || each.seq !== lines[place - 1].seq + 1),
    );
    if (!lines.length) chain.textContent = "";
    else if (broken)
      chain.replaceChildren(
        el("span", { class: "badge bad" }, icon("alert"), `Line ${broken.seq} does not follow from the one before`),
      );
    else
      chain.replaceChildren(
        el(
          "span",
          { class: "badge good" },
          icon("check"),
          `Lines ${lines[0].seq} to ${lines.at(-1).seq} follow from each other`,
        ),
      );
  }

  async function checkAll() {
    check.disabled = true;
    try {
      const { problems } = await api.get("audit/check");
      const text = problems.length
        ? problems.slice(0, 3).join(". ")
        : "The whole trail was checked: nothing is missing or changed";
      chain.replaceChildren(
        el(
          "span",
          { class: `badge ${problems.length ? "bad" : "good"}` },
          icon(problems.length ? "alert" : "check"),
          text,
        ),
      );
    } catch (error) {
      chain.textContent = error.message;
    }
    check.disabled = false;
  }

  async function lookBack() {
    const first = lines[0].seq;
    const from = Math.max(0, first - 1 - Math.min(PAGE, MOST - lines.length));
    older.disabled = true;
    try {
      const found = (await api.get(`audit?after=${from}&limit=${first - 1 - from}`)).lines;
      if (lines[0].seq === first) lines.unshift(...found);
      show();
      tellChain();
    } catch (error) {
      chain.textContent = error.message;
    }
    older.disabled = false;
  }

  async function refresh() {
    const after = begun ? (lines.at(-1)?.seq ?? 0) : Math.max(0, (await lastLine(api)) - PAGE);
    const found = (await api.get(`audit?after=${after}&limit=1000`)).lines;
    now = api.now();
    if (begun && !found.length) return;
    begun = true;
    lines.push(...found);
    lines.splice(0, lines.length - MOST);
    show();
    tellChain();
  }
  return { element, refresh, seconds: 4 };
}

// Sources

export function sources(api) {
  let now = Date.now();
  const problem = el("p", { class: "problem", attrs: { role: "alert" } });
  const none = empty("The site file names no sources.");
  const shown = table("Sources", [
    { label: "Source", cell: (each) => el("span", { class: "mono" }, plain(each.url)) },
    { label: "Into", cell: (each) => plain(each.collection) },
    {
      label: "State",
      cell: (each) => [
        state(each.state),
        each.state === "loading"
          ? el("progress", {
              ...(each.share === null ? {} : { value: each.share }),
              max: 1,
              attrs: { "aria-label": "How much was read" },
            })
          : null,
        each.error ? el("span", { class: "problem" }, plain(each.error)) : null,
      ],
    },
    { label: "When", class: "narrow", cell: (each) => ago(each.at, now) },
    { label: "Items", class: "number", cell: (each) => (each.state === "never" ? "" : each.items.toLocaleString()) },
    { label: "Last time", cell: (each) => changes(each) },
    {
      label: "",
      class: "narrow",
      cell: (each) =>
        el(
          "button",
          {
            class: "small",
            type: "button",
            disabled: busy,
            onclick: () => reload(each),
            attrs: { "aria-label": `Load again: ${each.url}` },
          },
          icon("retry"),
          "Load again",
        ),
    },
  ]);
  let busy = false,
    before = "";
  const element = el("div", {}, shown.element, none, problem);

  async function reload(source) {
    problem.textContent = "";
    try {
      await api.post(`sources/${source.number}/reload`, {});
      announce("Loading has begun.");
    } catch (error) {
      problem.textContent = error.message;
    }
    await refresh();
  }

  async function refresh() {
    const found = (await api.get("sources")).sources;
    now = api.now();
    const told = JSON.stringify(found);
    // A button under the pointer is not replaced by its likeness twice a second.
    if (told === before && shown.element.contains(document.activeElement)) return;
    before = told;
    busy = found.some((each) => each.state === "loading");
    shown.show(found);
    shown.element.hidden = !found.length;
    none.hidden = Boolean(found.length);
  }
  return { element, refresh, seconds: 2 };
}

function changes(source) {
  if (source.state === "never") return "";
  const parts = [
    ["added", source.added],
    ["changed", source.changed],
    ["removed", source.removed],
    ["bad", source.failed],
  ];
  const told = parts.filter(([, count]) => count).map(([name, count]) => `${count.toLocaleString()} ${name}`);
  return [
    told.join(", ") || (source.state === "loaded" ? "nothing new" : ""),
    el("span", { class: "faint", text: source.seconds >= 1 ? `in ${duration(source.seconds)}` : "" }),
  ];
}

// Feedback

export function feedback(api) {
  const list = el("div", { class: "stack" });
  const none = empty("Nobody has said anything yet.");
  let before = "";
  async function refresh() {
    const found = (await api.get("feedback")).feedback;
    const told = JSON.stringify(found);
    if (told === before) return;
    before = told;
    list.replaceChildren(...found.map((each) => opinion(each, api.now())));
    none.hidden = Boolean(found.length);
  }
  return { element: el("div", {}, list, none), refresh, seconds: 15 };
}

function opinion({ at, caller, opinion: { rating, comment, question, answer } }, now) {
  const up = rating === "up";
  return el(
    "article",
    { class: "card opinion" },
    el(
      "div",
      { class: "row" },
      icon(up ? "up" : "down"),
      el("strong", { text: up ? "Helpful" : "Not helpful" }),
      el("span", { class: "faint mono" }, plain(caller)),
      el("span", { class: "grow" }),
      el("span", { class: "faint" }, ago(at, now)),
    ),
    comment ? el("p", {}, said(comment)) : null,
    question ? el("p", { class: "clamp" }, el("span", { class: "faint", text: "Asked: " }), said(question)) : null,
    answer ? el("p", { class: "clamp faint" }, said(answer)) : null,
  );
}

// Traffic

const DOORS = { ask: "Questions", query: "Queries", call: "Calls" };

export function traffic(api) {
  const tiles = el("dl", { class: "tiles" });
  const charts = el("div", { class: "charts" });
  const about = el("p", {
    class: "faint",
    text: "The last hour, of the process that answered. What is measured is the site's own work, not the network.",
  });
  const element = el("div", {}, tiles, charts, about);
  async function refresh() {
    const { at, minutes } = await api.get("traffic");
    const end = Math.floor(Date.parse(at) / 60000);
    const moments = Array.from({ length: MINUTES }, (_, place) => new Date((end - MINUTES + 1 + place) * 60000));
    const found = new Map(minutes.map((each) => [Math.floor(Date.parse(each.at) / 60000), each]));
    const each = moments.map((moment) => found.get(moment.getTime() / 60000) ?? { doors: {}, refused: 0, broke: 0 });
    const doors = Object.entries(DOORS).map(([door, name]) => ({
      name,
      paces: each.map((minute) => minute.doors[door]),
    }));
    const open = [...charts.querySelectorAll("details")].map((part) => part.open);
    tiles.replaceChildren(
      ...told(each, doors).map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value }))),
    );
    charts.replaceChildren(
      chart({
        title: "Requests a minute",
        moments,
        series: doors.map(({ name, paces }) => ({ name, values: paces.map((pace) => pace?.count ?? 0) })),
      }),
      chart({
        title: "Time taken, on average",
        unit: " ms",
        kind: "lines",
        moments,
        series: doors.map(({ name, paces }) => ({
          name,
          values: paces.map((pace) => (pace ? pace.ms / pace.count : null)),
        })),
      }),
      chart({
        title: "Slowest of a minute",
        unit: " ms",
        kind: "lines",
        moments,
        series: doors.map(({ name, paces }) => ({ name, values: paces.map((pace) => pace?.slowest ?? null) })),
      }),
      chart({
        title: "Failed, refused, broken",
        moments,
        series: [
          { name: "Failed calls", tint: 0, values: doors[2].paces.map((pace) => pace?.errors ?? 0) },
          { name: "Refused", tint: 1, values: each.map((minute) => minute.refused) },
          { name: "Broken", tint: 3, values: each.map((minute) => minute.broke) },
        ],
      }),
    );
    charts.querySelectorAll("details").forEach((part, place) => (part.open = open[place] ?? false));
  }
  return { element, refresh, seconds: 10 };
}

function told(each, doors) {
  const paces = doors.flatMap((door) => door.paces).filter(Boolean);
  const count = paces.reduce((sum, pace) => sum + pace.count, 0);
  const ms = paces.reduce((sum, pace) => sum + pace.ms, 0);
  const sum = (name) => each.reduce((all, minute) => all + minute[name], 0);
  return [
    ["Requests this hour", short(count)],
    ["Time taken", count ? `${short(ms / count)} ms` : "–"],
    ["Slowest", count ? `${short(Math.max(...paces.map((pace) => pace.slowest)))} ms` : "–"],
    ["Failed calls", short(paces.reduce((all, pace) => all + pace.errors, 0))],
    ["Refused", short(sum("refused"))],
    ["Broken", short(sum("broke"))],
  ];
}
