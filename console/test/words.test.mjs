// The line for commands: words, help, and which replies are tables.

import assert from "node:assert/strict";
import test from "node:test";
import { decode, show, text } from "../src/resp";
import { learn, rows, words } from "../src/words";

const replies = (latin) => decode(Uint8Array.from(latin, (char) => char.charCodeAt(0)));

test("words are split as redis-cli splits them", () => {
  for (const [line, wanted] of [
    ["GET key", ["GET", "key"]],
    ["  SET  a\t'b c' ", ["SET", "a", "b c"]],
    ['SET a "say \\"x\\""', ["SET", "a", 'say "x"']],
    ["SET a 'it\\'s'", ["SET", "a", "it's"]],
    ['SET a ""', ["SET", "a", ""]],
    ["", []],
    ['GET "open', null],
    ['GET "a"b', null],
  ])
    assert.deepEqual(words(line)?.map(text) ?? null, wanted, line);
});

test("bytes may be typed", () => {
  assert.deepEqual(
    words('SET \\xff "\\x00\\n"').map((word) => [...word]),
    [[83, 69, 84], [255], [0, 10]],
  );
});

test("help is what COMMAND DOCS tells", () => {
  const string = (word) => `$${word.length}\r\n${word}\r\n`;
  const map = (...words) => `%${words.length / 2}\r\n${words.join("")}`;
  const list = (...words) => `*${words.length}\r\n${words.join("")}`;
  const argument = (facts) =>
    map(
      ...Object.entries(facts)
        .flat()
        .map((fact, at) => (at % 2 && fact[0] === "*" ? fact : string(fact))),
    );
  const set = map(
    string("summary"),
    string("Sets it."),
    string("complexity"),
    string("O(1)"),
    string("arguments"),
    list(
      argument({ name: "key", type: "key" }),
      argument({
        name: "condition",
        type: "oneof",
        flags: list("+optional\r\n"),
        arguments: list(
          argument({ name: "nx", type: "pure-token", token: "NX" }),
          argument({ name: "seconds", type: "integer", token: "EX" }),
        ),
      }),
      argument({ name: "more", type: "string", flags: list("+multiple\r\n") }),
    ),
  );
  const container = map(
    string("summary"),
    string("A container."),
    string("subcommands"),
    map(string("config|get"), map(string("summary"), string("Gets."))),
  );
  const help = new Map();
  learn(replies(map(string("set"), set, string("config"), container))[0], help);
  assert.deepEqual(help.get("SET"), {
    summary: "Sets it.",
    complexity: "O(1)",
    syntax: "SET key [NX|EX seconds] more [more ...]",
  });
  assert.equal(help.get("CONFIG GET").summary, "Gets.");
});

test("scores and fields are tables, lists of words are none", () => {
  const table = (latin) => rows(replies(latin)[0])?.map(([name, value]) => [name, show(value)]);
  assert.deepEqual(table("*2\r\n+a\r\n,1.5\r\n"), [["a", "1.5"]]);
  assert.deepEqual(table("*1\r\n*2\r\n+a\r\n,1.5\r\n"), [["a", "1.5"]]);
  assert.deepEqual(table("%1\r\n+f\r\n+v\r\n"), [["f", "v"]]);
  assert.equal(table("*2\r\n+a\r\n+b\r\n"), undefined);
  assert.equal(table("*0\r\n"), undefined);
  assert.equal(table("+OK\r\n"), undefined);
});
