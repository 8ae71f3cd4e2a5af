// What is typed in the line for commands, and what the server tells of them, without any page.

import { Pairs, type Reply, bytes, list, pairs, show } from "./resp";

export interface Help {
  summary: string;
  complexity: string;
  syntax: string;
}

/** How an argument is written. */
function syntax(argument: Map<string, Reply>): string {
  const of = (name: string) => (argument.has(name) ? show(argument.get(name)) : "");
  const parts = list(argument.get("arguments")).map((part) => syntax(new Map(pairs(part))));
  const kind = of("type");
  let shown =
    kind === "oneof"
      ? parts.join("|")
      : kind === "block"
        ? parts.join(" ")
        : kind === "pure-token"
          ? of("token")
          : of("name");
  if (of("token") && kind !== "pure-token") shown = `${of("token")} ${shown}`;
  const flags = list(argument.get("flags")).map(show);
  if (flags.includes("multiple")) shown = `${shown} [${shown} ...]`;
  if (flags.includes("optional")) return `[${shown}]`;
  return kind === "oneof" ? `<${shown}>` : shown;
}

/** Takes what COMMAND DOCS tells. */
export function learn(docs: Reply, help: Map<string, Help>): void {
  for (const [name, reply] of pairs(docs)) {
    const facts = new Map(pairs(reply));
    const words = name.replace("|", " ").toUpperCase();
    const rest = list(facts.get("arguments")).map((argument) => syntax(new Map(pairs(argument))));
    if (facts.has("subcommands")) learn(facts.get("subcommands")!, help);
    help.set(words, {
      summary: show(facts.get("summary")),
      complexity: facts.has("complexity") ? show(facts.get("complexity")) : "",
      syntax: [words, ...rest].join(" "),
    });
  }
}

/** Words as redis-cli reads them: quotes keep spaces. Null: a quote is open. */
export function words(line: string): Uint8Array[] | null {
  const found: Uint8Array[] = [];
  const pattern = /\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"']+))(?=\s|$)/gy;
  let at = 0;
  while (line.slice(at).trim()) {
    pattern.lastIndex = at;
    const part = pattern.exec(line);
    if (!part) return null;
    const quoted = part[1] ?? part[2];
    const unescaped = quoted
      ?.replace(/\\n/g, "\n")
      .replace(/\\r/g, "\r")
      .replace(/\\t/g, "\t")
      .replace(/\\(["'])/g, "$1");
    found.push(bytes(unescaped ?? part[3]!));
    at = pattern.lastIndex;
  }
  return found;
}

/** Names and numbers, as sorted sets and hashes are answered: one after the other, or in pairs. */
export function rows(reply: Reply): [string, Reply][] | null {
  if (reply instanceof Pairs) return reply.pairs.map(([key, value]) => [show(key), value]);
  if (!Array.isArray(reply) || reply.length === 0) return null;
  if (reply.every((pair) => Array.isArray(pair) && pair.length === 2)) return rows(reply.flat());
  if (reply.length % 2) return null;
  const isScored = reply.every(
    (value, at) => at % 2 === 0 || (!Array.isArray(value) && !isNaN(Number(show(value)))),
  );
  return isScored ? pairs(reply) : null;
}
