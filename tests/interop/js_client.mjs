// Runs the browser bundle of nlweb-js-client on a page and sends its chat one question after the other.
// Arguments: the endpoint, and JSON {mode, site, questions}. Prints for each what arrived and what the page shows.
import { listen, need, page, print, published } from "./clients.mjs";

const [endpoint, plan] = process.argv.slice(2);
const { mode, site, questions } = JSON.parse(plan);
const { EventSource } = need("eventsource");

const connections = [];

// A stream ends in one of three ways: the client closes it, the server refuses it, or it breaks off, after which an
// EventSource connects again.
class Watched extends EventSource {
  constructor(url) {
    super(url);
    this.frames = [];
    this.ended = new Promise((resolve) => (this.end = resolve));
    this.addEventListener("message", (event) => this.frames.push(JSON.parse(event.data)));
    this.addEventListener("error", () => this.end(this.readyState === Watched.CLOSED ? "refused" : "broken"));
    connections.push(this);
  }

  close() {
    super.close();
    this.end("closed");
  }
}

const window = page("<div id='chat-container'></div>", "https://shop.example/");
window.EventSource = Watched;
window.Element.prototype.scrollIntoView = () => {}; // a page that is not drawn cannot scroll
const said = listen();
window.console = console;
window.eval(published("nlweb-js-client", "dist", "nlweb-js-client.js"));

const chat = window.findChatInterface(site, "nlwebsearch", mode, endpoint);

// There is no bubble until the first message arrives.
const texts = (selector) => [...(chat.bubble?.querySelectorAll(selector) ?? [])].map((each) => each.textContent);

function shown() {
  const items = chat.currentItems.map(([item, element]) => {
    const link = element.querySelector("a");
    return { name: link.textContent, href: link.href, score: item.score, onPage: chat.bubble.contains(element) };
  });
  return {
    items,
    messages: texts(".intermediate-container"),
    answers: texts(".item-details-message"),
    remembered: texts(".remember-message"),
  };
}

const rounds = [];
for (const question of questions) {
  const before = connections.length;
  chat.sendMessage(question);
  const connection = connections.at(-1);
  const ended = await connection.ended;
  rounds.push({
    url: connection.url,
    frames: connection.frames,
    ended,
    readyState: connection.readyState,
    connections: connections.length - before,
    understood: chat.decontextualizedQuery,
    ...shown(),
  });
  connection.close();
}

print({ rounds, errors: said.error.map((parts) => parts.map(String).join(" ")) });
