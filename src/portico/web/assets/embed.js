// <portico-chat>: the chat of a site on any page. One script, no frame. It talks to where this script came from.
//
//   <script src="https://site.example/embed.js" async></script>
//   <portico-chat site="My shop" placeholder="Ask me…" collection="products" theme="light" language="en"></portico-chat>
(() => {
  const source = document.currentScript?.src;
  if (!source || customElements.get("portico-chat")) return;
  const origin = new URL(source).origin;
  const asset = (name) => `${origin}/assets/${name}`;
  const colours = ["sea", "on-sea", "wash", "sand", "paper", "rise", "ink", "faint", "line", "edge"];

  class PorticoChat extends HTMLElement {
    #chat = null;

    async connectedCallback() {
      if (this.shadowRoot) return;
      const root = this.attachShadow({ mode: "open" });
      const box = document.createElement("div");
      box.className = "embedded";
      box.hidden = true;
      const ours = sheet("portico.css");
      ours.media = "print"; // loaded, but of no effect before the colours of the page are known
      root.append(ours, sheet("chat.css"), box);
      const begun = import(asset("chat.js"));
      const { direction, spoken, words } = await import(asset("words.js"));
      const language = spoken(this.getAttribute("language"), document.documentElement.lang, navigator.languages ?? []);
      const [{ Chat }, say] = await Promise.all([begun, words(language)]);
      if (!this.hasAttribute("theme") && isColoured(this)) this.setAttribute("theme", "light");
      ours.media = "all";
      box.dir = direction(say.language);
      this.#chat = new Chat(box, {
        origin,
        chat: this.getAttribute("chat") || "/chat",
        site: this.getAttribute("site") ?? new URL(origin).hostname,
        placeholder: this.getAttribute("placeholder") || "",
        collection: this.getAttribute("collection") || "",
        collections: narrowed(this.getAttribute("collection")),
        say,
        answers: this.getAttribute("language") || "",
        outside: true,
        scroller: box,
      });
      box.hidden = false;
      this.dispatchEvent(new CustomEvent("portico-ready", { bubbles: true }));
    }

    disconnectedCallback() {
      this.#chat?.leave();
    }

    /** Asks a question, as if somebody had written it. */
    ask(question) {
      return this.#chat?.ask(String(question));
    }
  }

  // The one collection that the page names, so that it is the one that is asked.
  function narrowed(name) {
    return name ? [{ name, title: name }] : [];
  }

  // Whether the page gives colours of its own. They are made for the light: beside those of the dark nothing can be read.
  function isColoured(element) {
    const [own, around] = [element, element.parentElement ?? document.body].map((each) => getComputedStyle(each));
    return colours.some((each) => own.getPropertyValue(`--${each}`) !== around.getPropertyValue(`--${each}`));
  }

  function sheet(name) {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = asset(name);
    return link;
  }

  customElements.define("portico-chat", PorticoChat);
})();
