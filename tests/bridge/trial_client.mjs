// One official TypeScript SDK against one URL, for the trial.
// node trial_client.mjs URL SECONDS SDK_ROOT: connects, calls echo, and does both once more.
// Prints one JSON line: what became of the first and of the second round.
import { pathToFileURL } from "node:url";

const [url, seconds, root] = process.argv.slice(2);
const TEXT = "h\u00e9llo \u2713";
const load = (file) => import(pathToFileURL(`${root}/${file}`).href);
const { Client } = await load("dist/esm/client/index.js");
const { StreamableHTTPClientTransport } = await load("dist/esm/client/streamableHttp.js");

async function round() {
  const client = new Client({ name: "trial", version: "1" });
  let timer;
  const late = new Promise((resolve) => {
    timer = setTimeout(() => resolve("hang"), Number(seconds) * 1000);
  });
  const work = (async () => {
    try {
      await client.connect(new StreamableHTTPClientTransport(new URL(url)));
      const result = await client.callTool({ name: "echo", arguments: { text: TEXT } });
      return result.content[0].text.startsWith(TEXT) ? "ok" : "wrong";
    } catch (error) {
      return `error ${error.name}: ${String(error.message).slice(0, 160)}`;
    }
  })();
  const outcome = await Promise.race([work, late]);
  clearTimeout(timer);
  client.close().catch(() => {});
  return outcome;
}

const rounds = [await round(), await round()];
process.stdout.write(JSON.stringify(rounds) + "\n", () => process.exit(0));
