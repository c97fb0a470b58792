// Asks with the npm package openai: models, completions and responses, whole and streamed.
// Arguments: the base URL, and JSON {question, key}. Prints what the client gave.
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { print } from "./clients.mjs";

const [baseURL, plan] = process.argv.slice(2);
const { question, key } = JSON.parse(plan);

const home = join(process.env.PORTICO_CLIENTS, "node_modules", "openai");
const { default: OpenAI } = await import(pathToFileURL(join(home, "index.mjs")));

const client = new OpenAI({ baseURL, apiKey: key, maxRetries: 0 });
const models = [];
for await (const { id } of client.models.list()) models.push(id);
const [model] = models;
const messages = [{ role: "user", content: question }];

const completion = await client.chat.completions.create({ model, messages });

const stream = client.chat.completions.stream({ model, messages, stream_options: { include_usage: true } });
const pieces = [];
stream.on("content", (piece) => pieces.push(piece));
const streamed = await stream.finalChatCompletion();

const response = await client.responses.create({ model, input: question });
const events = [];
for await (const event of await client.responses.create({ model, input: question, stream: true })) events.push(event);

let thrown = null;
try {
  await client.chat.completions.create({ model: "nothing", messages });
} catch (error) {
  thrown = { name: error.constructor.name, status: error.status, code: error.code };
}

print({ models, completion, pieces, streamed, response, outputText: response.output_text, events, thrown });
