// Drives the console in a real browser and takes pictures of every view, wide and narrow, light and
// dark: node drive.mjs URL FOLDER. Needs `npm install --no-save playwright-core` and a Chromium.

import { mkdirSync } from "node:fs";
import { chromium } from "playwright-core";

const [url, folder] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
const check = (isSo, what) => {
  if (!isSo) throw new Error(what);
};

for (const [name, viewport, colorScheme] of [
  ["wide-light", { width: 1440, height: 900 }, "light"],
  ["wide-dark", { width: 1440, height: 900 }, "dark"],
  ["narrow-light", { width: 390, height: 844 }, "light"],
  ["narrow-dark", { width: 390, height: 844 }, "dark"],
]) {
  const page = await (await browser.newContext({ viewport, colorScheme })).newPage();
  const troubles = [];
  page.on("pageerror", (error) => troubles.push(String(error)));
  page.on("console", (line) => {
    if (line.type() === "error" && !line.text().includes("401")) troubles.push(line.text());
  });
  page.on("dialog", (dialog) => void dialog.accept());
  page.on("request", (request) => {
    const isOwn = request.url().startsWith(url) || request.url().startsWith("data:");
    check(isOwn, `the page loads ${request.url()}`);
  });
  const shoot = (view) => page.screenshot({ path: `${folder}/${name}-${view}.png` });
  const start = Date.now();
  await page.goto(url);
  await page.fill("input[name=user]", "default");
  await shoot("login");
  await page.click("text=Log in");
  await page.waitForSelector(".legend b");
  console.log(name, "first figure after", Date.now() - start, "ms");
  await page.waitForTimeout(4000);
  await shoot("live");
  await page.click("text=write");

  const tab = (view) => page.click(`nav >> text="${view}"`);
  await tab("Commands");
  const line = page.locator("input[aria-label=command]");
  const run = async (text) => {
    await line.fill(text);
    await page.keyboard.press("Enter");
    await page.locator(`article code:text-is("> ${text.replaceAll('"', '\\"')}")`).first().waitFor();
  };
  await run("SET page <script>alert(1)</script>");
  await run("ZADD scores 1 one 2 two 3 three");
  await run("ZRANGE scores 0 -1 WITHSCORES");
  await run("GET page");
  check(await page.locator("script").count() === 1, "a value has become a part of the page");
  await line.fill("ZADD scor");
  await shoot("commands");

  await tab("Keys");
  await page.locator("button.folder, button.key").first().waitFor();
  await page.fill("input[aria-label=pattern]", "scores");
  await page.keyboard.press("Enter");
  await page.locator(".members tr").first().waitFor();
  await page.fill("input[name=one]", "four");
  await page.fill("input[name=other]", "4");
  await page.locator("form.line button:text-is(\"Set\")").click();
  await page.locator('.members td:text-is("four")').waitFor();
  await page.fill("input[aria-label=pattern]", "*");
  await page.keyboard.press("Enter");
  await page.locator("button.folder").first().click();
  await shoot("keys");

  for (const view of ["Clients", "Slow", "ACL log", "Options", "Functions", "Cluster"]) {
    await tab(view);
    await page.locator("main .card").first().waitFor();
    await page.waitForTimeout(300);
    await shoot(view.replace(" ", "-").toLowerCase());
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    check(width <= viewport.width, `${view} is ${width} wide at ${viewport.width}`);
  }
  check(troubles.length === 0, troubles.join("\n"));
  await page.close();
}
await browser.close();
console.log("the console works");
