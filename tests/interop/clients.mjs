// What the drivers share: packages from the folder they are installed in, and a page for them to stand on.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const folder = process.env.PORTICO_CLIENTS; // holds node_modules

export const need = createRequire(join(folder, "drivers.cjs"));

export function published(...path) {
  return readFileSync(join(folder, "node_modules", ...path), "utf8");
}

export function page(html, url) {
  const { JSDOM, VirtualConsole } = need("jsdom");
  const virtualConsole = new VirtualConsole();
  virtualConsole.on("jsdomError", (error) => {
    if (error.type === "unhandled-exception") console.error(error.cause); // how a page looks is of no interest
  });
  return new JSDOM(html, { url, runScripts: "outside-only", virtualConsole }).window;
}

// Standard output is for the result alone; what packages say is kept.
export function listen() {
  const said = { log: [], warn: [], error: [] };
  for (const level of Object.keys(said)) {
    console[level] = (...parts) => said[level].push(parts);
  }
  return said;
}

// Ends the process too, since packages leave timers behind.
export function print(result) {
  process.stdout.write(JSON.stringify(result), () => process.exit(0));
}
