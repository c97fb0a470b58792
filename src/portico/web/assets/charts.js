// Small drawings of numbers over time. Every drawing has its numbers in a table behind it.

import { el } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 150;
const BOTTOM = 20; // for the words below
const LEFT = 44; // for the numbers beside

function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

/** A number for people: 1234567 as 1.2 M, 0.1234 as 0.12. */
export function short(number) {
  const sizes = [
    [1e9, "G"],
    [1e6, "M"],
    [1e4, "k", 1e3],
  ];
  for (const [from, unit, by = from] of sizes) if (number >= from) return `${(number / by).toFixed(1)} ${unit}`;
  return number >= 100 || Number.isInteger(number) ? String(Math.round(number)) : String(Number(number.toPrecision(2)));
}

function tint(series, place) {
  return `series-${series.tint ?? place}`;
}

// The next round number that nothing passes.
function top(most) {
  if (most <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= most);
}

// As many units as there will be pixels, about: so that words are as large on a phone as elsewhere.
// Where there is room for it, two stand side by side.
const width = () => (innerWidth < 900 ? Math.max(260, innerWidth - 80) : 480);

/**
 * A figure: `series` are {name, values} with a value (or null) for each of `moments`. `kind` is "bars", which stand on
 * each other, or "lines". A series may name its `tint`, 0 to 3: the last one is for what went wrong.
 */
export function chart({ title, unit = "", kind = "bars", series, moments }) {
  const sums = moments.map((_, at) => series.reduce((sum, each) => sum + (each.values[at] ?? 0), 0));
  const most = top(
    Math.max(0, ...(kind === "bars" ? sums : series.flatMap((each) => each.values.map((value) => value ?? 0)))),
  );
  const y = (value) => 6 + (HEIGHT - 6 - BOTTOM) * (1 - value / most);
  const wide = width();
  const x = (at) => LEFT + ((wide - LEFT) * at) / moments.length;
  const drawing = svg("svg", {
    viewBox: `0 0 ${wide} ${HEIGHT}`,
    class: "chart",
    role: "img",
    "aria-label": told(title, unit, series, moments),
  });
  drawing.append(...scale(most, y, wide), ...clock(moments, x, wide));
  drawing.append(
    ...(kind === "bars" ? bars(series, moments, x, y) : series.flatMap((each, place) => line(each, place, x, y))),
  );
  const legend = el(
    "ul",
    { class: "legend", attrs: { "aria-hidden": "true" } },
    series.map((each, place) => el("li", { class: tint(each, place) }, each.name)),
  );
  return el(
    "figure",
    { class: "card" },
    el("figcaption", {}, el("strong", {}, title, unit ? el("span", { class: "faint", text: unit }) : null), legend),
    drawing,
    numbers(title, unit, series, moments),
  );
}

function told(title, unit, series, moments) {
  const parts = series.map(
    (each) => `${each.name}: at most ${short(Math.max(0, ...each.values.map((value) => value ?? 0)))}${unit}`,
  );
  return `${title}, ${moments.length} minutes. ${parts.join("; ")}.`;
}

function scale(most, y, wide) {
  return [0, most / 2, most].flatMap((value) => [
    svg("line", { x1: LEFT, x2: wide, y1: y(value), y2: y(value), class: "grid" }),
    svg("text", { x: LEFT - 6, y: y(value) + 4, class: "scale" }, short(value)),
  ]);
}

function clock(moments, x, wide) {
  const every = Math.max(1, Math.round((moments.length * 110) / wide));
  return moments.flatMap((moment, at) => {
    if (at % every !== 0 || x(at) > wide - 60) return [];
    const text = moment.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    return [svg("text", { x: x(at), y: HEIGHT - 4, class: "clock" }, text)];
  });
}

function bars(series, moments, x, y) {
  const room = x(1) - x(0);
  const broad = Math.max(1, room - (room > 5 ? 2 : 0.5));
  return moments.flatMap((_, at) => {
    let below = 0;
    return series.flatMap((each, place) => {
      const value = each.values[at] ?? 0;
      if (!value) return [];
      const bar = svg("rect", {
        x: x(at) + 1,
        y: y(below + value),
        width: broad,
        height: Math.max(1, y(below) - y(below + value)),
        class: tint(each, place),
      });
      below += value;
      return [bar];
    });
  });
}

// A line breaks where nothing is known; what stands alone is a dot.
function line(each, place, x, y) {
  const runs = [[]];
  each.values.forEach((value, at) =>
    value === null || value === undefined ? runs.push([]) : runs.at(-1).push([x(at + 0.5), y(value)]),
  );
  return runs
    .filter((run) => run.length)
    .map((run) =>
      run.length === 1
        ? svg("circle", { cx: run[0][0], cy: run[0][1], r: 2.5, class: tint(each, place) })
        : svg("polyline", {
            points: run.map((point) => point.map((value) => value.toFixed(1)).join(",")).join(" "),
            class: tint(each, place),
          }),
    );
}

function numbers(title, unit, series, moments) {
  const rows = moments.flatMap((moment, at) => {
    const values = series.map((each) => each.values[at] ?? null);
    if (values.every((value) => !value)) return [];
    const cells = values.map((value) =>
      el("td", { class: "number", text: value === null ? "" : `${short(value)}${unit}` }),
    );
    return [
      el(
        "tr",
        {},
        el("th", {
          attrs: { scope: "row" },
          text: moment.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }),
        }),
        cells,
      ),
    ];
  });
  const head = el(
    "tr",
    {},
    el("th", { text: "Minute" }),
    series.map((each) => el("th", { class: "number", text: each.name })),
  );
  const table = el(
    "table",
    {},
    el("caption", { class: "hidden", text: title }),
    el("thead", {}, head),
    el("tbody", {}, rows),
  );
  return el(
    "details",
    {},
    el("summary", { class: "faint", text: "As a table" }),
    rows.length
      ? el("div", { class: "scroll", tabIndex: 0, attrs: { role: "region", "aria-label": title } }, table)
      : el("p", { class: "faint", text: "Nothing yet." }),
  );
}
