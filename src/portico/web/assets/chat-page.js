// The front page: the conversation, what was asked before, and how it all looks. Without this the page is still a page.

import { clear, el, icon, iconButton, said, stored, store, themeButton, time } from "./dom.js";
import { local } from "./cards.js";
import { Chat } from "./chat.js";
import { written } from "./chat-history.js";
import { direction, LANGUAGES, words } from "./words.js";

const CURRENT = "portico.chat";
const data = JSON.parse(document.getElementById("portico-data").textContent);
const main = document.querySelector("main");
const chosen = stored("portico.language") ?? "";
const root = document.documentElement;
const say = await words(root.lang);
const { language } = say;
const asked = new URLSearchParams(location.search);

Object.assign(root, { lang: language, dir: direction(language) });
translate();

// What stood there before, in English.
function translate() {
  const standing = {
    ".skip": "skip",
    ".shelves > h2": "collections",
    ".abilities summary": "abilities",
    ".abilities th:first-child": "ability",
    ".abilities th:last-child": "does",
  };
  for (const [where, name] of Object.entries(standing))
    for (const each of document.querySelectorAll(where)) each.textContent = say.own[name] ?? each.textContent;
  for (const each of document.querySelectorAll(".shelf-list .number"))
    each.textContent = Number(each.textContent.replaceAll(",", "")).toLocaleString(language);
  delete root.dataset.unsaid;
}

const chat = new Chat(document.getElementById("chat"), {
  site: data.site,
  chat: data.chat,
  images: data.images,
  collections: data.collections,
  collection: asked.get("collection") ?? "",
  mode: asked.get("mode") ?? "summarize",
  say,
  starters: data.starters[language] ?? data.starters.en,
  answers: chosen,
  changed: ({ turns }) => main.classList.toggle("talking", turns.length > 0),
  kept: (id) => remember(id),
});

// Within a tab a conversation is still there when somebody comes back from an item.
function remember(id) {
  try {
    if (id) sessionStorage.setItem(CURRENT, id);
    else sessionStorage.removeItem(CURRENT);
  } catch {
    // A browser that keeps nothing begins anew.
  }
}

function remembered() {
  try {
    return chat.history.find(sessionStorage.getItem(CURRENT));
  } catch {
    return null;
  }
}

function begin(conversation = null) {
  remember(conversation?.id);
  chat.open(conversation);
  if (!conversation) scrollTo({ top: 0 });
}

// The tools at the top

function tool(name, label, onclick) {
  return el(
    "button",
    { class: "quiet tool", type: "button", title: label, onclick },
    icon(name),
    el("span", { class: "tool-name", text: label }),
  );
}

function languagePicker() {
  const change = (event) => {
    store("portico.language", event.target.value || null);
    location.reload();
  };
  const choices = [
    el("option", { value: "", text: `${say("language")}: ${say("system")}` }),
    ...Object.entries(LANGUAGES).map(([tag, name]) =>
      el("option", { value: tag, text: name, lang: tag, selected: tag === chosen }),
    ),
  ];
  return el(
    "label",
    { class: "language" },
    icon("globe"),
    el("span", { class: "hidden", text: say("language") }),
    el("select", { onchange: change }, choices),
  );
}

// What was asked before

const shelf = el("dialog", { class: "history", attrs: { "aria-label": say("history") } });

function showHistory() {
  const all = chat.history.all();
  const rows = all.map((each) =>
    el(
      "li",
      {},
      el(
        "button",
        { class: "quiet grow", type: "button", onclick: () => (shelf.close(), begin(each)) },
        el(
          "span",
          { class: "grow" },
          said(each.title, { class: "clamp" }),
          el("small", { class: "faint" }, time(each.at, local(language))),
        ),
      ),
      iconButton("download", say("export"), () =>
        save(`${each.title.slice(0, 40).replace(/[^\p{L}\p{N}]+/gu, "-")}.md`, written(each), "text/markdown"),
      ),
      iconButton("trash", say("remove"), () => (chat.history.remove(each.id), each.id === chat.id && begin(), showHistory())),
    ),
  );
  clear(shelf).append(
    el(
      "div",
      { class: "row" },
      el("h2", { class: "grow", text: say("history") }),
      iconButton("close", say("close"), () => shelf.close()),
    ),
    rows.length ? el("ul", { class: "history-list" }, rows) : el("p", { class: "faint", text: say("noHistory") }),
    rows.length
      ? el(
          "div",
          { class: "row" },
          el(
            "button",
            {
              class: "small",
              type: "button",
              onclick: () => save("conversations.json", JSON.stringify(all, null, 1), "application/json"),
            },
            icon("download"),
            say("export"),
          ),
          el(
            "button",
            { class: "small", type: "button", onclick: (event) => removeAll(event.currentTarget) },
            icon("trash"),
            say("removeAll"),
          ),
        )
      : "",
  );
  if (!shelf.open) shelf.showModal();
  else shelf.querySelector("button").focus(); // what was pressed is gone
}

// Asked for twice: nothing brings them back.
function removeAll(button) {
  if (button.className.includes("danger")) return chat.history.clear(), begin(), showHistory();
  button.classList.add("danger");
  button.lastChild.data = `${say("removeAll")}: ${say("confirm")}`;
}

function save(name, text, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

document.getElementById("tools").append(
  tool("plus", say("newChat"), () => begin()),
  tool("history", say("history"), showHistory),
  languagePicker(),
  themeButton(say.own),
);
document.body.append(shelf);
shelf.addEventListener("click", (event) => event.target === shelf && shelf.close());

// A link may bring a question along. Whoever made the link has asked it, so nothing is done for it.
const question = (asked.get("q") ?? "").trim().slice(0, 4000);
const earlier = question ? null : remembered();
if (question) {
  history.replaceState(null, "", location.pathname);
  chat.ask(question, { linked: true });
} else if (earlier) {
  chat.open(earlier);
} else if (matchMedia("(hover: hover)").matches) {
  chat.input.focus({ preventScroll: true });
}
