// Renders the hook useNlWeb of @nlweb-ai/search-components and searches with it, one search after the other.
// Arguments: the endpoint, and JSON {config, searches}. Prints the hook's state after each search.
import { listen, need, page, print } from "./clients.mjs";

const [endpoint, plan] = process.argv.slice(2);
const { config, searches } = JSON.parse(plan);

const window = page("<div id='root'></div>", new URL(endpoint).origin);
Object.assign(globalThis, { window, document: window.document, IS_REACT_ACT_ENVIRONMENT: true });
const said = listen();

const { act, createElement } = need("react");
const { createRoot } = need("react-dom/client");
const { useNlWeb } = need("@nlweb-ai/search-components");

let hook;

function Search() {
  hook = useNlWeb({ endpoint, ...config });
  return null;
}

async function search(params) {
  try {
    await act(() => hook.search(params));
  } catch {
    await act(() => {}); // the hook keeps what went wrong in its state, and throws it as well
  }
  return { ...hook };
}

await act(() => createRoot(window.document.getElementById("root")).render(createElement(Search)));
const states = [];
for (const params of searches) {
  states.push(await search(params));
}

const dropped = said.log.filter(([text]) => text === "failed to parse").map(([, item]) => item);
print({ states, dropped, errors: said.error.map((parts) => parts.map(String).join(" ")) });
