// rate-limiter-flexible: of many calls at once exactly as many pass as the limit says, in each of
// its forms, with scripts and with MULTI.
//
// node rate_limiter.mjs PORT

import assert from "node:assert/strict";
import { Redis } from "ioredis";
import { BurstyRateLimiter, RateLimiterRedis } from "rate-limiter-flexible";

const clients = Array.from(
  { length: 4 },
  () => new Redis({ host: "127.0.0.1", port: Number(process.argv[2]), lazyConnect: false }),
);
const asked = 400;

// Asks through all connections at once; how many were let through.
async function ask(limiters, key) {
  const consume = (_, at) => limiters[at % limiters.length].consume(key);
  const calls = Array.from({ length: asked }, consume);
  const results = await Promise.allSettled(calls);
  const refused = results.filter((result) => result.status === "rejected");
  refused.forEach(({ reason }) => assert.ok("msBeforeNext" in reason, reason));
  return asked - refused.length;
}

function limiters(options) {
  return clients.map((storeClient) => new RateLimiterRedis({ storeClient, ...options }));
}

async function fixedWindow() {
  const all = limiters({ keyPrefix: "fixed", points: 100, duration: 60 });
  assert.equal(await ask(all, "a"), 100);
  assert.equal(await ask(all, "b"), 100);
  const state = await all[0].get("a");
  assert.equal(state.consumedPoints, asked);
  assert.equal(state.remainingPoints, 0);
  assert.ok(state.msBeforeNext > 0 && state.msBeforeNext <= 60_000);
  await all[0].delete("a");
  assert.equal(await ask(all, "a"), 100);
}

async function windowPasses() {
  const all = limiters({ keyPrefix: "short", points: 10, duration: 1 });
  assert.equal(await ask(all, "a"), 10);
  const { msBeforeNext } = await all[0].get("a");
  await new Promise((resolve) => setTimeout(resolve, msBeforeNext + 20));
  assert.equal(await ask(all, "a"), 10);
}

async function blocked() {
  const all = limiters({ keyPrefix: "block", points: 5, duration: 1, blockDuration: 600 });
  assert.equal(await ask(all, "a"), 5);
  const state = await all[0].get("a");
  assert.ok(state.msBeforeNext > 500_000, "the block lasts longer than the window");
  await all[0].penalty("b", 3);
  await all[0].reward("b", 1);
  assert.equal((await all[0].get("b")).consumedPoints, 2);
}

async function bursty() {
  const [limiter] = limiters({ keyPrefix: "steady", points: 20, duration: 60 });
  const [burst] = limiters({ keyPrefix: "burst", points: 30, duration: 60 });
  assert.equal(await ask([new BurstyRateLimiter(limiter, burst)], "a"), 50);
}

for (const part of [fixedWindow, windowPasses, blocked, bursty]) await part();
clients.forEach((client) => client.disconnect());
console.log("rate_limiter: every limit let through what it says");
