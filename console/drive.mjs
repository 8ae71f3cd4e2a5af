// Drives the console in a real browser, as people do it, and takes pictures of every view, wide and
// narrow, light and dark: node drive.mjs URL REDIS-PORT FOLDER. The server is one that may be
// written to, without a password, with `hotkeys-sample` and an append-only file if they are to be
// seen. Needs `npm install --no-save playwright-core` and a Chromium.

import { mkdirSync } from "node:fs";
import { connect } from "node:net";
import { chromium } from "playwright-core";

const [url, port, folder] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
const check = (isSo, what) => {
  if (!isSo) throw new Error(what);
};

/** A client beside the browser. Calls are words; replies come as text of the protocol. */
function client() {
  const socket = connect(Number(port), "127.0.0.1");
  let text = "";
  let wake = () => {};
  socket.on("data", (bytes) => ((text += bytes), wake()));
  socket.on("close", () => ((text += "(closed)"), wake()));
  socket.on("error", () => {});
  const ask = (...words) => {
    text = "";
    const parts = words.map((word) => Buffer.from(word));
    const head = (part) => Buffer.from(`$${part.length}\r\n`);
    const call = [Buffer.from(`*${parts.length}\r\n`)];
    for (const part of parts) call.push(head(part), part, Buffer.from("\r\n"));
    socket.write(Buffer.concat(call));
    return new Promise((done) => (wake = () => /\r\n$|\(closed\)$/.test(text) && done(text)));
  };
  return { socket, ask };
}

const own = client();
const HOSTILE = [
  "<script>alert(1)</script>",
  '"><img src=x onerror=alert(1)>',
  "\u202eevil\u202c",
  Buffer.from([0xff, 0xfe, 0x00, 0x0a, 0x41]),
  "javascript:alert(1)",
  "a\r\nb",
  "' OR 1=1 --",
  "{{constructor.constructor('alert(1)')()}}",
  "",
];

async function prepare() {
  for (const key of HOSTILE) {
    const name = Buffer.concat([Buffer.from("hostile:"), Buffer.from(key)]);
    await own.ask("DEL", name);
    await own.ask("HSET", name, key, key);
  }
  await own.ask("DEL", "edit:string", "edit:long", "edit:list", "edit:set", "edit:zset");
  await own.ask("DEL", "edit:hash", "edit:stream", "edit:new", "edit:renamed", "big:hash");
  await own.ask("SET", "edit:string", "hello", "EX", "1000");
  await own.ask("SET", "edit:long", "0123456789abcdef".repeat(4096));
  await own.ask("RPUSH", "edit:list", "same", "other", "same");
  await own.ask("SADD", "edit:set", "one", "two");
  await own.ask("ZADD", "edit:zset", "1", "one", "2.5", "two");
  await own.ask("HSET", "edit:hash", "field", "value", "dying", "value");
  await own.ask("HEXPIRE", "edit:hash", "1000", "FIELDS", "1", "dying");
  await own.ask("XADD", "edit:stream", "1-1", "field", "value");
  await own.ask("XGROUP", "CREATE", "edit:stream", "readers", "0");
  const fill = (command, arguments_) =>
    own.ask(
      "EVAL",
      `for i=1,1000 do redis.call('${command}', KEYS[1], ${arguments_}) end`,
      "1",
      `big:${command}`,
    );
  await fill("HSET", "'field:'..i, i");
  for (const [key, ...words] of [
    ["RPUSH", "i"],
    ["SADD", "'m'..i"],
    ["ZADD", "i, 'm'..i"],
  ]) {
    await own.ask("DEL", `big:${key}`);
    await fill(key, words);
  }
  await own.ask("SET", "large:string", "x".repeat(20 << 20));
  await own.ask("DEL", "large:list", "big:many");
  const many = Array.from({ length: 1500 }, (_, at) => [`f${at}`, `v${at}`]).flat();
  await own.ask("HSET", "big:many", ...many);
  for (let at = 0; at < 12; at++) await own.ask("RPUSH", "large:list", `${at} `.repeat(1 << 20));
  for (const [from, to] of [
    ["1", "2 3"],
    ["2", "3"],
    ["3", "1"],
    ["4", "3 1"],
  ])
    await own.ask("SADD", `graph:${from}`, ...to.split(" "));
  for (let at = 0; at < 40; at++)
    await own.ask(
      "HSET",
      `person:${at}`,
      "name",
      `n${at}`,
      "age",
      String(20 + ((at * 7) % 50)),
      "height",
      String(150 + at),
    );
  await own.ask(
    "ACL",
    "SETUSER",
    "watcher",
    "reset",
    "on",
    ">password",
    "resetchannels",
    "-@all",
    "+get",
    "~person:*",
  );
  await own.ask("SLOWLOG", "RESET");
  await own.ask("CONFIG", "SET", "slowlog-log-slower-than", "1000");
  await own.ask("DEBUG", "SLEEP", "0.01");
  await own.ask(
    "FUNCTION",
    "LOAD",
    "REPLACE",
    "#!lua name=mine\nredis.register_function('f', function() return 1 end)",
  );
}

/** A page that is logged in, and minds what it must not do. */
async function open(viewport, colorScheme, name = "default", password = "") {
  const page = await (await browser.newContext({ viewport, colorScheme })).newPage();
  page.troubles = [];
  page.answer = undefined;
  page.on("pageerror", (error) => page.troubles.push(String(error)));
  page.on("console", (line) => {
    if (line.type() === "error" && !/40[013]/.test(line.text())) page.troubles.push(line.text());
  });
  page.on("dialog", (dialog) => {
    if (dialog.type() === "alert") page.troubles.push(`alert: ${dialog.message()}`);
    void dialog.accept(dialog.type() === "prompt" ? page.answer : undefined);
  });
  page.on("request", (request) => {
    const isOwn = request.url().startsWith(url) || request.url().startsWith("data:");
    if (!isOwn) page.troubles.push(`the page loads ${request.url()}`);
  });
  await page.goto(url);
  await page.fill("input[name=user]", name);
  await page.fill("input[name=password]", password);
  return page;
}

const tab = (page, view) => page.click(`nav >> text="${view}"`);
const row = (page, text) => page.locator(".members tbody tr", { hasText: text });

async function find(page, pattern) {
  await tab(page, "Keys");
  await page.fill("input[aria-label=pattern]", pattern);
  await page.keyboard.press("Enter");
}

/** Opens a key by its exact name. */
async function pick(page, key) {
  await find(page, key);
  await page.locator(`section.value h2:text-is("${key}")`).waitFor();
  await page.locator("section.value .facts").waitFor();
}

async function change(page, of, text, to) {
  await row(page, of).locator("td", { hasText: text }).locator(".pen").click();
  await page.fill('textarea[aria-label="new value"]', to);
  await page.click('.members button:text-is("Store")');
}

async function has(what, expected, ...call) {
  for (let turn = 0; ; turn++) {
    const told = await own.ask(...call);
    if (told.includes(expected)) return;
    check(turn < 50, `${what}: ${JSON.stringify(told)}`);
    await new Promise((done) => setTimeout(done, 100));
  }
}

/** Each type is changed in the page, and looked at beside it. */
async function edit(page, shoot) {
  await page.check("text=write");
  await pick(page, "edit:string");
  await page.waitForFunction(
    () => document.querySelector("textarea[aria-label=value]").value === "hello",
  );
  await page.fill("textarea[aria-label=value]", "good \\xff\nday");
  await page.click('button:text-is("Store")');
  await has("a string", "$10", "GET", "edit:string");
  await has("its expiry", ":", "TTL", "edit:string");
  check(!(await own.ask("TTL", "edit:string")).includes("-1"), "the expiry is gone");
  await pick(page, "edit:long");
  await page.click('button:text-is("After")');
  await page.locator("text=bytes 16384 to 32767 of 65536").waitFor();
  const box = page.locator("textarea[aria-label=value]");
  await page.waitForFunction(
    () => document.querySelector("textarea[aria-label=value]").value.length === 16384,
  );
  await box.fill("XXXX" + (await box.inputValue()).slice(4));
  await page.click('button:text-is("Store")');
  await has("a piece", "XXXX", "GETRANGE", "edit:long", "16384", "16387");
  // What was stored may be shown again meanwhile.
  const refusal = page.locator("text=A piece keeps its length");
  for (let turn = 0; turn < 20 && !(await refusal.isVisible()); turn++) {
    await box.fill("short");
    await page.click('button:text-is("Store")');
    await page.waitForTimeout(50);
  }
  await refusal.waitFor();
  await shoot("edit-string");
  await pick(page, "edit:list");
  // Of two that are equal the last goes.
  await row(page, "same").last().locator("button[title=remove]").click();
  await has("an element", "*2\r\n$4\r\nsame\r\n$5\r\nother", "LRANGE", "edit:list", "0", "-1");
  await change(page, "other", "other", "changed");
  await has("an element", "changed", "LINDEX", "edit:list", "1");
  await page.fill("input[aria-label=element]", "first");
  await page.click('button:text-is("At the beginning")');
  await has("an element", "first", "LINDEX", "edit:list", "0");
  await shoot("edit-list");
  await pick(page, "edit:set");
  await page.fill("input[aria-label=member]", "three");
  await page.click('form.line button:text-is("Add")');
  await has("a member", ":1", "SISMEMBER", "edit:set", "three");
  await change(page, "one", "one", "four");
  await has("a member", ":1", "SISMEMBER", "edit:set", "four");
  await row(page, "two").locator("button[title=remove]").click();
  await has("a member", ":0", "SISMEMBER", "edit:set", "two");
  await shoot("edit-set");
  await pick(page, "edit:zset");
  await change(page, "one", "1", "7.25");
  await has("a score", "7.25", "ZSCORE", "edit:zset", "one");
  await page.fill("input[aria-label=member]", "three");
  await page.fill("input[aria-label=score]", "-1");
  await page.click('form.line button:text-is("Set")');
  await has("a member", "-1", "ZSCORE", "edit:zset", "three");
  await shoot("edit-zset");
  await pick(page, "edit:hash");
  await change(page, "dying", "value", "other");
  await has("a field", "other", "HGET", "edit:hash", "dying");
  check(
    !(await own.ask("HTTL", "edit:hash", "FIELDS", "1", "dying")).includes("-1"),
    "a field's expiry is gone",
  );
  await page.fill("input[aria-label=field]", HOSTILE[0]);
  await page.fill("input[aria-label=value]", HOSTILE[1]);
  await page.click('form.line button:text-is("Set")');
  await has("a field", HOSTILE[1], "HGET", "edit:hash", HOSTILE[0]);
  await shoot("edit-hash");
  await pick(page, "edit:stream");
  await page.fill("textarea[aria-label=fields]", "a: 1\nb: two words");
  await page.click('form.line button:text-is("Add")');
  await has("an entry", "two words", "XREVRANGE", "edit:stream", "+", "-", "COUNT", "1");
  await row(page, "1-1").locator("button[title=remove]").click();
  await has("an entry", ":1", "XLEN", "edit:stream");
  await page.locator('h3:text-is("Groups")').waitFor();
  await shoot("edit-stream");
  // Pages of big ones.
  for (const [key, member] of [
    ["big:RPUSH", "150"],
    ["big:ZADD", "m150"],
  ]) {
    await pick(page, key);
    await page.click('section.value button:text-is("After")');
    await row(page, member).first().waitFor();
  }
  await page.check("text=last first");
  await row(page, "m1000").waitFor();
  // Pages of large ones are of few.
  await pick(page, "large:list");
  await row(page, "0 0 0").first().waitFor();
  check((await page.locator(".members tbody tr").count()) < 3, "a page of large ones is too large");
  await page.click('section.value button:text-is("After")');
  await row(page, "1 1 1").first().waitFor();
  await pick(page, "big:HSET");
  await page.click('section.value button:text-is("After")');
  await page.locator('.pages span:text-is("page 2")').waitFor();
  await page.fill('input[aria-label="pattern of members"]', "field:77?");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll(".members tbody tr").length === 10);
  await row(page, "field:777").waitFor();
  // A new key, another name for it, its end.
  await page.fill('input[aria-label="new key"]', "edit:new");
  await page.selectOption('select[aria-label="type of the new key"]', "zset");
  await page.click('button:text-is("New")');
  await page.fill("input[aria-label=member]", "m");
  await page.fill("input[aria-label=score]", "1");
  await page.click('form.line button:text-is("Set")');
  await has("a new key", "+zset", "TYPE", "edit:new");
  page.answer = "edit:renamed";
  await page.click('button:text-is("Rename")');
  await has("another name", "+zset", "TYPE", "edit:renamed");
  page.answer = "500";
  await page.locator('h2:text-is("edit:renamed")').waitFor();
  await page.click('button:text-is("Expiry")');
  await has("an expiry", ":", "TTL", "edit:renamed");
  await page.locator("section.value .facts", { hasText: "to live" }).waitFor();
  await page.click('button:text-is("Delete")');
  await has("its end", "+none", "TYPE", "edit:renamed");
}

/** Keys that are HTML, invalid, or turn the text around are shown as text. */
async function hostile(page, shoot) {
  await find(page, "hostile:*");
  await page.locator("button.folder", { hasText: "hostile" }).click();
  await page.locator("button.folder", { hasText: "javascript" }).click();
  await page.locator(".leaf small:not(:empty)").first().waitFor();
  for (const key of await page.locator(".leaf .key").all()) {
    await key.click();
    await page.locator("section.value .facts").waitFor();
    await page.locator(".members tbody tr").first().waitFor();
  }
  check((await page.locator(".leaf .key").count()) === HOSTILE.length, "keys are missing");
  check(
    (await page.locator("img, iframe, main script").count()) === 0,
    "a key is a part of the page",
  );
  await page.locator(".leaf .key", { hasText: "\\xff\\xfe" }).click();
  await shoot("hostile");
}

async function commands(page, shoot) {
  await tab(page, "Commands");
  const line = page.locator("input[aria-label=command]");
  const run = async (text) => {
    await line.fill(text);
    await page.keyboard.press("Enter");
    await page
      .locator(`article code:text-is("> ${text.replaceAll('"', '\\"')}")`)
      .first()
      .waitFor();
    return page.locator("article").first();
  };
  await run("SET page <script>alert(1)</script>");
  await run("GET page");
  check((await page.locator("script").count()) === 1, "a value has become a part of the page");
  // A reply that is too long is told in its place, and the session goes on.
  const long = await run("GET large:string");
  await long
    .locator(".failure", { hasText: "TOOLONG 'get', call 1 of 1, is answered with" })
    .waitFor();
  await shoot("too-long");
  const part = await run("GETRANGE large:string 0 199999");
  await part.locator("text=and 100000 characters more").waitFor();
  const all = await run("HGETALL big:many");
  await all.locator("text=and 500 more").waitFor();
  const refused = await run("MONITOR");
  await refused.locator("text=can't be called from the console").waitFor();
  let found = await run(
    "EXPORT BEGIN MATCH person:* TYPE hash COLUMNS __key name age AS int64 height AS float64",
  );
  await found.locator("text=40 rows").waitFor();
  await shoot("export-table");
  await found.locator('button:text-is("as a plot")').click();
  await found
    .locator("label", { hasText: "across" })
    .locator("select")
    .selectOption({ label: "age" });
  await found.locator(".uplot canvas").waitFor();
  await shoot("export-plot");
  found = await run(
    "EXPORT BEGIN MATCH hostile:* TYPE hash COLUMNS __key AS binary __fields AS binary __ttl",
  );
  await found.locator(`text=${HOSTILE.length} rows`).waitFor();
  found = await run("GRAPH.PAGERANK_RO MATCH graph:*");
  await found.locator(".wide tbody tr").first().waitFor();
  check((await found.locator(".wide tbody tr").count()) === 4, "four nodes");
  await found.locator('button:text-is("as a plot")').click();
  await found.locator(".uplot canvas").waitFor();
  await shoot("graph");
  await line.fill("ZADD scor");
  await page.locator(".help").waitFor();
  await shoot("commands");
}

/** A client is killed, an option changed, by who may. */
async function administer(page) {
  const victim = client();
  const id = /:(\d+)/.exec(await victim.ask("CLIENT", "ID"))[1];
  const gone = new Promise((done) => victim.socket.on("close", done));
  await tab(page, "Clients");
  await page
    .locator("tr", { has: page.locator(`td:nth-child(2):text-is("${id}")`) })
    .locator("button")
    .click();
  await gone;
  await tab(page, "Options");
  // Also by the name that it has elsewhere.
  await page.fill('input[aria-label="look for"]', "slowlog-max-len");
  const option = page.locator("dt", { hasText: "commandlog-slow-execution-max-len" });
  page.answer = "77";
  await option.locator("button").click();
  await has("an option", "77", "CONFIG", "GET", "slowlog-max-len");
  page.answer = "many";
  await option.locator("button").click();
  await page.locator(".failure", { hasText: "CONFIG SET failed" }).waitFor();
  await own.ask("CONFIG", "SET", "slowlog-max-len", "128");
}

const VIEWS = {
  Live: ".legend b",
  Keys: ".tree li",
  "Hot keys": ".card",
  Memory: ".card",
  Slots: "canvas.slots",
  Clients: "td",
  Slow: "td",
  "ACL log": ".card",
  Options: "dt",
  Functions: "summary",
};

/** Who may next to nothing is told what is missing, view by view. */
async function refused() {
  const page = await open({ width: 1440, height: 900 }, "light", "watcher", "wrong");
  await page.click('button:text-is("Log in")');
  await page.locator(".failure", { hasText: "WRONGPASS" }).waitFor();
  const asked = await page.inputValue("input[name=user]");
  check(asked === "watcher", `who was refused is asked for as ${asked}`);
  await page.fill("input[name=password]", "password");
  await page.click('button:text-is("Log in")');
  for (const view of Object.keys(VIEWS)) {
    await tab(page, view);
    if (view === "Memory") await page.click('button:text-is("Report")');
    const told = page.locator(".failure", { hasText: "permissions" }).first();
    await told.waitFor().catch(() => check(false, `${view} does not tell what is missing`));
  }
  // What he may: of the keys that he may read.
  await find(page, "person:1");
  await page.locator("section.value", { hasText: "permissions" }).waitFor();
  await page.screenshot({ path: `${folder}/refused.png` });
  await tab(page, "Commands");
  await page.fill("input[aria-label=command]", "SET person:1 x");
  await page.keyboard.press("Enter");
  await page.locator(".failure", { hasText: "turn writing on first" }).waitFor();
  check(page.troubles.length === 0, page.troubles.join("\n"));
  await page.close();
}

/** One key among as many as there are. */
async function search(page) {
  const count = Number((await own.ask("DBSIZE")).slice(1));
  for (const pattern of ["needle:*", "needle:in:the:hay"]) {
    await own.ask("SET", "needle:in:the:hay", "found");
    const start = Date.now();
    await find(page, pattern);
    if (pattern.includes("*")) await page.locator("button.folder", { hasText: "needle" }).waitFor();
    else await page.locator('section.value h2:text-is("needle:in:the:hay")').waitFor();
    console.log(`${pattern} among ${count} keys after ${Date.now() - start} ms`);
  }
}

await prepare();
for (const [name, viewport, colorScheme] of [
  ["wide-light", { width: 1440, height: 900 }, "light"],
  ["wide-dark", { width: 1440, height: 900 }, "dark"],
  ["narrow-light", { width: 390, height: 844 }, "light"],
  ["narrow-dark", { width: 390, height: 844 }, "dark"],
]) {
  await prepare();
  const page = await open(viewport, colorScheme);
  const shoot = async (view) => {
    await page.screenshot({ path: `${folder}/${name}-${view}.png` });
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    check(width <= viewport.width, `${view} is ${width} wide at ${viewport.width}`);
  };
  await shoot("login");
  const start = Date.now();
  await page.click('button:text-is("Log in")');
  await page.waitForSelector(".legend b");
  console.log(name, "first figure", Date.now() - start, "ms after logging in");
  const again = Date.now();
  await page.reload();
  await page.waitForSelector(".legend b");
  console.log(name, "first figure", Date.now() - again, "ms after opening the page");
  await page.waitForTimeout(3000);
  for (const [view, sign] of Object.entries(VIEWS)) {
    await tab(page, view);
    if (view === "Memory") await page.click('button:text-is("Report")');
    await page
      .locator(`main ${view === "Memory" ? "td" : sign}`)
      .first()
      .waitFor();
    await page.waitForTimeout(300);
    await shoot(view.replace(" ", "-").toLowerCase());
  }
  await commandsRefused(page);
  await edit(page, shoot);
  await hostile(page, shoot);
  await commands(page, shoot);
  await administer(page);
  if (name === "wide-light") await search(page);
  check(page.troubles.length === 0, page.troubles.join("\n"));
  await page.click('button:text-is("Log out")');
  await page.waitForSelector("form.login");
  await page.close();
  console.log(name, "all done");
}

/** Nothing is written before somebody wants to. */
async function commandsRefused(page) {
  await tab(page, "Commands");
  await page.fill("input[aria-label=command]", "SET never x");
  await page.keyboard.press("Enter");
  await page.locator(".failure", { hasText: "turn writing on first" }).waitFor();
}

await refused();
await browser.close();
own.socket.destroy();
console.log("the console works");
