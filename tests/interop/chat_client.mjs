// Talks with AIChatProtocolClient of @microsoft/ai-chat-protocol, one turn after the other.
// Arguments: the endpoint, and JSON {turns, key?}; a turn has messages with files as texts, options, and whether it streams.
// Prints for each turn what the client gave, or what it threw, and how many requests it made.
import http from "node:http";
import { syncBuiltinESMExports } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { print } from "./clients.mjs";

const [endpoint, plan] = process.argv.slice(2);
const { turns, key } = JSON.parse(plan);

const home = join(process.env.PORTICO_CLIENTS, "node_modules", "@microsoft", "ai-chat-protocol");
const { AIChatProtocolClient } = await import(pathToFileURL(join(home, "dist", "esm", "index.js")));

let requests = 0;
const sending = http.request;
http.request = (...given) => {
  requests += 1;
  return sending(...given);
};
syncBuiltinESMExports(); // the client imports it by name

const client = key
  ? new AIChatProtocolClient(endpoint, { key }, { credentials: { apiKeyHeaderName: "api-key" } })
  : new AIChatProtocolClient(endpoint);

// In Node the client refuses what it makes of plain bytes; files it sends.
function prepared({ files, ...message }) {
  if (!files) return message;
  const sent = files.map(({ contentType, text, name }) => ({ contentType, data: new File([text], name ?? "") }));
  return { ...message, files: sent };
}

async function taken({ messages, options, streams }) {
  const said = messages.map(prepared);
  if (!streams) return { completion: await client.getCompletion(said, options) };
  const chunks = [];
  for await (const chunk of await client.getStreamedCompletion(said, options)) chunks.push(chunk);
  return { chunks };
}

const heard = [];
for (const turn of turns) {
  requests = 0;
  try {
    heard.push({ ...(await taken(turn)), requests });
  } catch (error) {
    heard.push({ thrown: error instanceof Error ? String(error) : error, requests });
  }
}
print({ turns: heard });
