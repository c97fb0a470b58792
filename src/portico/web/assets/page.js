// Pages that are read: the theme, the menu, and what can be done with an item. Without this they are still pages.

import { announce, el, stored, themeButton } from "./dom.js";
import { spoken, words } from "./words.js";

const ENDED = new Set(["completed", "failed", "cancelled"]);
const say = await words(spoken(stored("portico.language"), navigator.languages ?? [], document.documentElement.lang));
const name = document.querySelector("article h1")?.textContent.trim() ?? "";
let key = null;
let wire = null;

const tools = document.getElementById("tools");
tools.lang = say.language; // of the reader, which may not be that of the page
tools.append(themeButton(say.own));

// The menu closes when somebody is done with it.
const menu = document.querySelector("details.browse");
const shut = (event) => {
  const isInside = menu?.contains(event.target);
  if (!menu?.open || (isInside && event.key !== "Escape")) return;
  menu.open = false;
  if (isInside) menu.firstElementChild.focus();
};
for (const event of ["click", "keydown", "focusin"]) document.addEventListener(event, shut);

// The chat is not told where a question came from: the name of the item goes with it.
document.querySelector("form.asking")?.addEventListener("submit", (event) => {
  if (!name) return;
  event.preventDefault();
  const question = new FormData(event.target).get("q").trim();
  if (question) location.assign(`/?${new URLSearchParams({ q: `${name.slice(0, 200)}: ${question}` })}`);
});

// What can be done: a form here instead of a question there.
for (const link of document.querySelectorAll("a[data-operation]")) {
  const button = el(
    "button",
    { class: link.className, type: "button", title: link.title, onclick: () => open(link) },
    link.textContent,
  );
  link.replaceWith(button);
}

async function open(link) {
  const [{ act }, { Wire }] = await Promise.all([import("./chat-forms.js"), import("./chat-wire.js")]);
  wire ??= new Wire(location.origin, () => key);
  const action = { name: link.dataset.operation, params: JSON.parse(link.dataset.params) };
  const setKey = (given) => ((key = given), wire.forget());
  const tell = ({ task }) => task && watch(task, link.textContent, setKey);
  act(action, { name }, { wire, say, host: document.body, tell, setKey });
}

// Work that takes longer is watched to its end, below the buttons.
async function watch(task, title, setKey) {
  const [{ pause, problem, progress }, { shownValue }] = await Promise.all([
    import("./chat-forms.js"),
    import("./cards.js"),
  ]);
  const id = task.id;
  const place = el("div", { class: "doing" });
  const work = progress(title, say, () => wire.cancelTask(id).catch(() => {}));
  const { signal } = new AbortController();
  place.append(work.element);
  document.querySelector(".actions").append(place);
  try {
    for (; !ENDED.has(task.state); task = await wire.task(id, signal)) {
      work.show(task.progress ?? 0, task.message);
      await pause(signal);
    }
    place.replaceChildren(el("div", { class: "card" }, el("h3", { text: title }), outcome(task, shownValue)));
    announce(say(task.state === "completed" ? "done" : "failed"));
  } catch (error) {
    place.replaceChildren(problem(error, say, () => (place.remove(), watch(task, title, setKey)), setKey));
  }
}

function outcome(task, shownValue) {
  if (task.state === "completed") return shownValue(task.result ?? {}, location.origin);
  return el("p", { text: task.error?.message ?? say(task.state === "cancelled" ? "cancelled" : "failed") });
}
