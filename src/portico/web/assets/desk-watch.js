// What happens: agents at work, tasks, sources, feedback, traffic.

import { announce, el, icon, itemPath } from "./dom.js";
import { chart, short } from "./charts.js";
import { ago, badge, confirmed, duration, empty, plain, state, table, wrong } from "./desk-parts.js";

const MINUTES = 60;

function whose(caller, name, key = "") {
  return [
    name ? el("strong", {}, plain(name)) : null,
    el("span", { class: "faint" }, key ? ["of ", plain(key), " "] : null, el("span", { class: "mono" }, plain(caller))),
  ];
}

function progress(share, label) {
  return el("progress", { max: 1, value: share, attrs: { "aria-label": label } });
}

function ending(text, label, onclick) {
  return el("button", { class: "small", type: "button", onclick, attrs: { "aria-label": label } }, icon("stop"), text);
}

/** Executions and tasks. */
export function work(api) {
  let now = Date.now();
  const problem = el("p", { class: "problem", attrs: { role: "alert" } });
  const runs = table(
    "Agents at work",
    [
      { label: "Agent", cell: ({ caller, execution }) => whose(caller, execution.element_name, api.names.of(caller)) },
      { label: "State", cell: (each) => state(each.execution.status) },
      {
        label: "Steps",
        cell: ({ execution: { progress: at } }) =>
          at ? [`${at.current} of ${at.total}`, progress(at.total ? at.current / at.total : 0, "Steps")] : "",
      },
      { label: "Begun", class: "narrow", cell: (each) => ago(each.execution.started_at, now) },
      { label: "Last heard", cell: ({ execution: { progress: at } }) => at?.message && plain(at.message) },
      {
        label: "",
        class: "narrow",
        same: () => "",
        cell: ({ execution: { execution_id: id, element_name: name } }) =>
          ending("End…", `End ${name}`, () => end(id, name)),
      },
    ],
    (each) => each.execution.execution_id,
  );
  const tasks = table(
    "Tasks",
    [
      {
        label: "Operation",
        cell: (each) => [
          el("strong", { class: "mono" }, plain(each.operation)),
          el("span", { class: "faint mono", text: each.id }),
        ],
      },
      { label: "Caller", cell: ({ caller, name }) => (caller === name ? plain(name) : whose(caller, name)) },
      {
        label: "State",
        cell: (each) => [state(each.state), each.state === "running" ? progress(each.progress, "Progress") : null],
      },
      { label: "Begun", class: "narrow", cell: (each) => ago(each.created, now) },
      { label: "Says", cell: (each) => says(each.error || each.message) },
      {
        label: "",
        class: "narrow",
        same: (each) => String(isOver(each)),
        cell: (each) =>
          isOver(each) ? "" : ending("Cancel", `Cancel ${each.operation}, ${each.id}`, () => cancel(each)),
      },
    ],
    (each) => each.id,
  );
  const noRuns = empty(
      "No agent is at work.",
      "One that starts with execute_agent is shown here, with the steps it has taken of those it may take.",
    ),
    noTasks = empty("No tasks yet.", "Operations that take long run as tasks. They go on after a restart.");
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
    problem,
  );

  async function doing(path, body, told) {
    problem.textContent = "";
    try {
      await api.post(path, body);
      announce(told);
    } catch (error) {
      problem.textContent = wrong(error);
    }
    await refresh().catch(() => {}); // the next look says what is wrong
  }

  async function end(id, name) {
    const said = await confirmed({
      title: `End ${name}?`,
      text: "Whatever it was allowed in this execution is void, and to go on it has to ask again. What its key may do without asking, it still may: to stop it altogether, revoke the key.",
      action: "End it",
      kind: "danger",
    });
    if (said) await doing(`executions/${encodeURIComponent(id)}/end`, said, `${name} was ended.`);
  }

  const cancel = (task) => doing(`tasks/${encodeURIComponent(task.id)}/cancel`, {}, `${task.operation} was cancelled.`);

  async function refresh() {
    const [{ executions, names }, found] = [await api.get("executions"), await api.get("tasks?limit=50")];
    api.names.learn(names);
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

function says(text) {
  return text && el("span", { class: "clamp" }, plain(text));
}

function isOver(task) {
  return !["pending", "running"].includes(task.state);
}

// Sources

export function sources(api) {
  let now = Date.now(),
    busy = false,
    loading = new Set();
  const told = el("p", { class: "note", hidden: true, attrs: { role: "status" } });
  const none = empty(
    "The site file names no sources.",
    "Add a [[source]] to it, and the server loads it at the next start.",
  );
  const shown = table(
    "Sources",
    [
      { label: "Source", cell: (each) => el("span", { class: "mono" }, plain(each.url)) },
      { label: "Into", cell: (each) => plain(each.collection) },
      {
        label: "State",
        cell: (each) => [
          state(each.state),
          each.state === "loading" ? reading(each.share) : null,
          each.error ? el("span", { class: "problem" }, plain(each.error)) : null,
        ],
      },
      { label: "When", class: "narrow", cell: (each) => [ago(each.at, now), next(each, now)] },
      { label: "Items", class: "number", cell: (each) => (each.state === "never" ? "" : each.items.toLocaleString()) },
      { label: "Last time", cell: (each) => [changes(each), doubtCount(each)] },
      {
        label: "",
        class: "narrow",
        same: () => String(busy),
        cell: (each) =>
          el(
            "button",
            {
              class: "small",
              type: "button",
              onclick: () => reload(each),
              attrs: { "aria-label": `Load again: ${each.url}`, "aria-disabled": String(busy) },
            },
            icon("retry"),
            "Load again",
          ),
      },
    ],
    (each) => each.number,
  );
  const doubts = el("div", { class: "doubts" });
  let listed = "";
  const element = el("div", {}, told, shown.element, none, doubts);

  // What somebody has opened stays open while the doubts stay what they are.
  function showDoubts(all) {
    const doubtful = all.filter((source) => source.doubts.length || source.bad_records.length);
    const text = JSON.stringify(doubtful.map((source) => [source.url, source.doubts, source.bad_records]));
    if (text === listed) return;
    listed = text;
    doubts.replaceChildren(...doubtful.map(doubtful.length === 1 ? opened : doubtList));
  }

  function tell(text, kind) {
    told.className = `note banner ${kind}`;
    told.replaceChildren(...[text].flat());
    told.hidden = false;
  }

  async function reload(source) {
    if (busy) return tell("One source is loaded at a time. Wait until this one is done.", "warn");
    try {
      await api.post(`sources/${source.number}/reload`, {});
      loading.add(source.number);
      tell(["Loading ", plain(source.url), "…"], "");
    } catch (error) {
      tell(wrong(error), "bad");
    }
    await refresh().catch(() => {}); // the next look says what is wrong
  }

  function ended(source) {
    if (source.state === "failed")
      return tell(
        [plain(source.url), " was not loaded: ", plain(source.error), ". What was there before is still there."],
        "bad",
      );
    tell([plain(source.url), ` was loaded: ${counts(source)}.`], "good");
  }

  async function refresh() {
    const found = (await api.get("sources")).sources;
    now = api.now();
    busy = found.some((each) => each.state === "loading");
    for (const each of found) if (loading.has(each.number) && each.state !== "loading") ended(each);
    loading = new Set(found.filter((each) => each.state === "loading").map((each) => each.number));
    shown.show(found);
    shown.element.hidden = !found.length;
    none.hidden = Boolean(found.length);
    showDoubts(found);
  }
  return { element, refresh, seconds: 2 };
}

function next(source, now) {
  if (!source.due || source.state === "loading") return null;
  const seconds = (Date.parse(source.due) - now) / 1000;
  return el("span", { class: "faint", text: seconds < 5 ? "again now" : `again in ${duration(seconds)}` });
}

function many(count, one, several) {
  return `${count.toLocaleString()} ${count === 1 ? one : several}`;
}

function doubtCount(source) {
  return source.doubt_count ? badge(many(source.doubt_count, "doubt", "doubts"), "warn") : null;
}

function opened(source) {
  const list = doubtList(source);
  list.open = true;
  return list;
}

/** The doubts of a source and the records that were not loaded, with their places. */
function doubtList(source) {
  const counts = [
    source.doubt_count ? many(source.doubt_count, "doubt", "doubts") : "",
    source.failed ? `${many(source.failed, "record", "records")} not loaded` : "",
  ].filter(Boolean);
  const left = source.doubt_count - source.doubts.reduce((sum, doubt) => sum + doubt.count, 0);
  return el(
    "details",
    {},
    el("summary", {}, el("span", { class: "mono" }, plain(source.url)), `: ${counts.join(", ")}`),
    el(
      "ul",
      {},
      source.bad_records.map((bad) => doubtLine(bad.where, "", "", bad.reason)),
      source.doubts.map((doubt) => doubtLine(doubt.place, doubt.field, doubt.value, doubt.reason, doubt)),
    ),
    left > 0 ? el("p", { class: "faint", text: `and ${many(left, "more", "more")}; portico check lists them` }) : null,
  );
}

function doubtLine(place, field, value, reason, { count = 1, setting = "" } = {}) {
  return el(
    "li",
    {},
    el("span", { class: "mono" }, plain(place)),
    " ",
    field ? [el("strong", {}, plain(field)), " "] : null,
    value ? ["“", plain(value), "” "] : null,
    plain(reason),
    count > 1 ? el("span", { class: "faint", text: ` and ${many(count - 1, "more", "more")} like it` }) : null,
    setting ? el("div", { class: "faint" }, "Settle it with ", el("code", {}, plain(setting))) : null,
  );
}

function reading(share) {
  return el("progress", {
    ...(share === null ? {} : { value: share }),
    max: 1,
    attrs: { "aria-label": "How much was read" },
  });
}

function counts(source) {
  const parts = [
    ["added", source.added],
    ["changed", source.changed],
    ["removed", source.removed],
    ["bad", source.failed],
  ];
  const told = parts.filter(([, count]) => count).map(([name, count]) => `${count.toLocaleString()} ${name}`);
  return told.join(", ") || "nothing new";
}

function changes(source) {
  if (source.state === "never" || source.state === "loading") return "";
  return [
    source.state === "loaded" ? counts(source) : "",
    el("span", { class: "faint", text: source.seconds >= 1 ? `in ${duration(source.seconds)}` : "" }),
  ];
}

// Feedback

export function feedback(api) {
  const list = el("div", { class: "stack" });
  const none = empty("Nobody has said anything yet.", "People say whether an answer helped with the thumbs below it.");
  const sum = el("p", { class: "faint" });
  let before = "";
  async function refresh() {
    const found = (await api.get("feedback")).feedback;
    const told = JSON.stringify(found);
    if (told === before) return;
    before = told;
    const good = found.filter((each) => each.opinion.rating === "up").length;
    sum.textContent = found.length ? `Of the newest ${found.length}, ${good} say that it helped.` : "";
    list.replaceChildren(...found.map((each) => opinion(each, api.now())));
    none.hidden = Boolean(found.length);
  }
  return { element: el("div", {}, sum, list, none), refresh, seconds: 15 };
}

function opinion({ at, caller, opinion: { rating, comment, question, answer, items } }, now) {
  const up = rating === "up";
  return el(
    "article",
    { class: "card opinion", attrs: { "aria-label": up ? "Helpful" : "Not helpful" } },
    el(
      "div",
      { class: "row" },
      icon(up ? "up" : "down"),
      el("strong", { text: up ? "Helpful" : "Not helpful" }),
      el("span", { class: "faint mono" }, plain(caller)),
      el("span", { class: "grow" }),
      el("span", { class: "faint" }, ago(at, now)),
    ),
    comment ? el("blockquote", {}, plain(comment)) : null,
    el(
      "dl",
      {},
      question ? [el("dt", { text: "Asked" }), el("dd", {}, plain(question))] : null,
      answer ? [el("dt", { text: "Answered" }), el("dd", {}, el("span", { class: "clamp" }, plain(answer)))] : null,
      items?.length ? [el("dt", { text: "Shown" }), el("dd", { class: "shown" }, items.map(linked))] : null,
    ),
  );
}

function linked(id) {
  return el("a", { class: "mono", href: itemPath(id) }, plain(id));
}

// Traffic

const REQUEST_KINDS = { ask: "Questions", query: "Queries", call: "Calls" };

export function traffic(api) {
  const tiles = el("dl", { class: "tiles" });
  const charts = el("div", { class: "charts" });
  const about = el("p", {
    class: "faint",
    text: "The last hour, of the process that answered. What is measured is the site's own work, not the network.",
  });
  const none = el(
    "p",
    { class: "note", hidden: true },
    "Nothing was asked in the last hour. Ask something in ",
    el("a", { href: "/", text: "the chat" }),
    " or through ",
    el("a", { href: "/inspect", text: "the inspector" }),
    ", and it is counted here.",
  );
  const element = el("div", {}, none, tiles, charts, about);
  async function refresh() {
    const { at, minutes } = await api.get("traffic");
    const end = Math.floor(Date.parse(at) / 60000);
    const moments = Array.from({ length: MINUTES }, (_, place) => new Date((end - MINUTES + 1 + place) * 60000));
    const byMinute = new Map(minutes.map((minute) => [Math.floor(Date.parse(minute.at) / 60000), minute]));
    const hour = moments.map((moment) => byMinute.get(moment.getTime() / 60000) ?? { requests: {}, refusals: 0, defects: 0 });
    const kinds = Object.entries(REQUEST_KINDS).map(([kind, name]) => ({
      name,
      paces: hour.map((minute) => minute.requests[kind]),
    }));
    none.hidden = minutes.length > 0;
    charts.hidden = !minutes.length;
    const open = [...charts.querySelectorAll("details")].map((part) => part.open);
    tiles.replaceChildren(
      ...summarize(hour, kinds).map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value }))),
    );
    charts.replaceChildren(
      chart({
        title: "Requests a minute",
        moments,
        series: kinds.map(({ name, paces }) => ({ name, values: paces.map((pace) => pace?.count ?? 0) })),
      }),
      chart({
        title: "Time taken, on average",
        unit: " ms",
        kind: "lines",
        moments,
        series: kinds.map(({ name, paces }) => ({
          name,
          values: paces.map((pace) => (pace ? pace.ms / pace.count : null)),
        })),
      }),
      chart({
        title: "Slowest of a minute",
        unit: " ms",
        kind: "lines",
        moments,
        series: kinds.map(({ name, paces }) => ({ name, values: paces.map((pace) => pace?.slowest ?? null) })),
      }),
      chart({
        title: "Failed, refused, broken",
        moments,
        series: [
          { name: "Failed calls", tint: 0, values: kinds[2].paces.map((pace) => pace?.errors ?? 0) },
          { name: "Refused", tint: 1, values: hour.map((minute) => minute.refusals) },
          { name: "Broken", tint: 3, values: hour.map((minute) => minute.defects) },
        ],
      }),
    );
    charts.querySelectorAll("details").forEach((part, place) => (part.open = open[place] ?? false));
  }
  return { element, refresh, seconds: 10 };
}

function summarize(hour, kinds) {
  const paces = kinds.flatMap((kind) => kind.paces).filter(Boolean);
  const count = paces.reduce((sum, pace) => sum + pace.count, 0);
  const ms = paces.reduce((sum, pace) => sum + pace.ms, 0);
  const sum = (name) => hour.reduce((all, minute) => all + minute[name], 0);
  return [
    ["Requests this hour", short(count)],
    ["Time taken", count ? `${short(ms / count)} ms` : "–"],
    ["Slowest", count ? `${short(Math.max(...paces.map((pace) => pace.slowest)))} ms` : "–"],
    ["Failed calls", short(paces.reduce((all, pace) => all + pace.errors, 0))],
    ["Refused", short(sum("refusals"))],
    ["Broken", short(sum("defects"))],
  ];
}
