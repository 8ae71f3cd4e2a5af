// ioredis writes to a cluster until its input ends, then reads all that was acknowledged.
//
// node cluster_ioredis.mjs PORT

import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

import { Cluster } from "ioredis";

const WRITERS = 4;
const PAUSE_MS = 1;
const PATIENCE_MS = 60_000;

const { version } = createRequire(import.meta.url)("ioredis/package.json");
const client = new Cluster([{ host: "127.0.0.1", port: Number(process.argv[2]) }]);
// What concerns a call its promise tells.
client.on("error", () => {});

let isOver = false;
let longest = 0;
const acknowledged = [];
const errors = {};

async function write(writer) {
  for (let number = 1; !isOver; number++) {
    const key = `${writer}:${number}`;
    const since = performance.now();
    try {
      await client.set(key, number);
      acknowledged.push([key, number]);
    } catch (error) {
      const kind = error.name === "ReplyError" ? error.message.split(" ")[0] : error.name;
      errors[kind] = (errors[kind] ?? 0) + 1;
    }
    longest = Math.max(longest, performance.now() - since);
    await sleep(PAUSE_MS);
  }
}

// A cluster may need a moment; what is not there is not there.
async function read(key) {
  for (const until = performance.now() + PATIENCE_MS; ; await sleep(100)) {
    try {
      return await client.get(key);
    } catch (error) {
      if (performance.now() > until) throw error;
    }
  }
}

const writers = Array.from({ length: WRITERS }, (_, writer) => write(writer));
for await (const _ of process.stdin);
isOver = true;
await Promise.all(writers);
let lost = 0;
for (const [key, number] of acknowledged) {
  if ((await read(key)) !== String(number)) lost++;
}
console.log(JSON.stringify({
  client: `ioredis ${version}`,
  acknowledged: acknowledged.length,
  errors,
  lost,
  longest_ms: Math.round(longest),
}));
client.disconnect();
