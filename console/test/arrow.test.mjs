// A stream of Arrow as EXPORT answers it: test/export.arrow is one with every type of column and
// rows that lack some, test/export.json its rows as pyarrow reads them.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { read } from "../src/arrow";
import { show } from "../src/resp";

const stream = new Uint8Array(readFileSync("test/export.arrow"));
const wanted = JSON.parse(readFileSync("test/export.json", "utf8"));
const shown = ({ head, rows }) => ({ head, rows: rows.map((row) => row.map(show)) });

test("a stream is read as rows", () => assert.deepEqual(shown(read(stream)), wanted));

test("of half a stream there is what has come", () => {
  const counts = new Set();
  for (let end = 0; end <= stream.length; end++) {
    const { head, rows } = read(stream.subarray(0, end));
    assert.ok(head.length === 0 || head.length === wanted.head.length);
    assert.deepEqual(shown({ head, rows }).rows, wanted.rows.slice(0, rows.length), `${end}`);
    counts.add(rows.length);
  }
  assert.ok(counts.has(0) && counts.has(wanted.rows.length));
});
