// BullMQ: jobs that fail and come again, that wait, that have a priority, that repeat, that have
// children, and one whose worker dies. Each must be completed exactly once.
//
// node bullmq.mjs PORT [JOBS]

import assert from "node:assert/strict";
import { FlowProducer, Queue, QueueEvents, Worker } from "bullmq";

const connection = { host: "127.0.0.1", port: Number(process.argv[2]), maxRetriesPerRequest: null };
const jobs = Number(process.argv[3] ?? 10_000);
const chunk = 500;
const deadlineMs = 120_000;

// Of ten jobs one fails at first, one is delayed, one has a priority.
function optionsOf(index) {
  const keep = { removeOnComplete: false, jobId: `job-${index}` };
  if (index % 10 === 0) return { ...keep, attempts: 3, backoff: { type: "fixed", delay: 20 } };
  if (index % 10 === 1) return { ...keep, delay: 1 + (index % 1000) };
  if (index % 10 === 2) return { ...keep, priority: 1 + (index % 7) };
  return keep;
}

async function until(what, condition) {
  const start = Date.now();
  while (!(await condition())) {
    assert.ok(Date.now() - start < deadlineMs, `waited in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function closeAll(...parts) {
  await Promise.all(parts.map((part) => part.close()));
}

async function manyJobs() {
  const queue = new Queue("many", { connection });
  const events = new QueueEvents("many", { connection });
  const runs = new Map();
  const completed = new Map();
  const count = (map, key) => map.set(key, (map.get(key) ?? 0) + 1);
  events.on("completed", ({ jobId, returnvalue }) => count(completed, `${jobId} ${returnvalue}`));
  await events.waitUntilReady();

  const work = async (job) => {
    count(runs, job.data.index);
    if (job.data.index % 10 === 0 && job.attemptsMade === 0) throw new Error("at first");
    return job.data.index * 2;
  };
  const workers = [0, 1, 2].map(() => new Worker("many", work, { connection, concurrency: 40 }));
  workers.forEach((worker) => worker.on("error", (error) => assert.fail(error)));
  for (let first = 0; first < jobs; first += chunk) {
    const indices = Array.from({ length: Math.min(chunk, jobs - first) }, (_, at) => first + at);
    await queue.addBulk(
      indices.map((index) => ({ name: "work", data: { index }, opts: optionsOf(index) })),
    );
  }
  await until("all jobs are completed", async () => (await queue.getCompletedCount()) === jobs);
  await until("all events have come", () => completed.size === jobs);
  for (let index = 0; index < jobs; index++) {
    assert.equal(runs.get(index), index % 10 === 0 ? 2 : 1, `runs of job ${index}`);
    assert.equal(completed.get(`job-${index} ${index * 2}`), 1, `completions of job ${index}`);
  }
  const left = await queue.getJobCounts("waiting", "active", "delayed", "prioritized", "failed");
  assert.deepEqual(left, { waiting: 0, active: 0, delayed: 0, prioritized: 0, failed: 0 });
  await closeAll(...workers, events);
  await queue.obliterate();
  await queue.close();
}

// What has the highest priority comes first, whoever was added first.
async function priorities() {
  const queue = new Queue("priorities", { connection });
  for (let index = 0; index < 30; index++) {
    await queue.add("work", { index }, { priority: 30 - index });
  }
  const order = [];
  const work = async (job) => void order.push(job.data.index);
  const worker = new Worker("priorities", work, { connection });
  await until("all priorities are served", () => order.length === 30);
  assert.deepEqual(order, Array.from({ length: 30 }, (_, at) => 29 - at));
  await closeAll(worker, queue);
}

async function repeated() {
  const queue = new Queue("repeated", { connection });
  const seen = [];
  const work = async (job) => void seen.push(job.id);
  const worker = new Worker("repeated", work, { connection });
  await queue.upsertJobScheduler("tick", { every: 100, limit: 5 }, { name: "tick" });
  await until("the scheduler has made its jobs", () => seen.length === 5);
  assert.equal(new Set(seen).size, 5);
  await queue.removeJobScheduler("tick");
  assert.equal(await queue.getJobSchedulersCount(), 0);
  await closeAll(worker, queue);
}

async function flow() {
  const producer = new FlowProducer({ connection });
  const events = new QueueEvents("parents", { connection });
  const children = new Worker("children", async (job) => job.data.value, { connection });
  const sum = async (job) => {
    const values = Object.values(await job.getChildrenValues());
    return values.reduce((total, value) => total + value, 0);
  };
  const parents = new Worker("parents", sum, { connection });
  const trees = await producer.addBulk(
    Array.from({ length: 20 }, () => ({
      name: "sum",
      queueName: "parents",
      children: Array.from({ length: 10 }, (_, value) => ({
        name: "value",
        queueName: "children",
        data: { value },
      })),
    })),
  );
  for (const tree of trees) {
    assert.equal(await tree.job.waitUntilFinished(events, deadlineMs), 45);
  }
  await closeAll(children, parents, events, producer);
}

// A paused queue stands still; a limited worker takes its time.
async function pausedAndLimited() {
  const queue = new Queue("limited", { connection });
  await queue.pause();
  let done = 0;
  const limiter = { max: 5, duration: 100 };
  const worker = new Worker("limited", async () => void done++, { connection, limiter });
  await queue.addBulk(Array.from({ length: 20 }, () => ({ name: "work", data: {} })));
  await new Promise((resolve) => setTimeout(resolve, 200));
  assert.equal(done, 0);
  const start = Date.now();
  await queue.resume();
  await until("the limited jobs are done", () => done === 20);
  assert.ok(Date.now() - start >= 300, "the limiter let too many through");
  await closeAll(worker, queue);
}

// A worker that dies with a job in its hands: another one takes the job when it has stalled.
async function stalled() {
  const queue = new Queue("stalled", { connection });
  const options = { connection, lockDuration: 300, stalledInterval: 200, skipLockRenewal: true };
  let isTaken = false;
  const never = () => ((isTaken = true), new Promise(() => {}));
  const dying = new Worker("stalled", never, options);
  dying.on("error", () => {});
  const job = await queue.add("work", {});
  await until("the job is taken", () => isTaken);
  await dying.close(true);
  let rescued = 0;
  const rescue = async () => void rescued++;
  const worker = new Worker("stalled", rescue, { connection, stalledInterval: 200 });
  await until("the job is rescued", async () => (await job.getState()) === "completed");
  assert.equal(rescued, 1);
  await closeAll(worker, queue);
}

for (const part of [manyJobs, priorities, repeated, flow, pausedAndLimited, stalled]) {
  const start = Date.now();
  await part();
  console.log(`  ${part.name}: ${Date.now() - start} ms`);
}
console.log(`bullmq: ${jobs} jobs, each completed once`);
process.exit(0);
