// Bytes to replies and to text, and back.

import assert from "node:assert/strict";
import test from "node:test";
import { Bytes, Failure, Pairs, bytes, decode, encode, list, pairs, show, text } from "../src/resp";

const raw = (latin) => Uint8Array.from(latin, (char) => char.charCodeAt(0));
const of = (latin) => decode(raw(latin));

test("replies are read one by one", () => {
  const [ok, error, number, nothing, yes, half] = of(
    "+OK\r\n-ERR no\r\n:-7\r\n_\r\n#t\r\n,1.5\r\n",
  );
  assert.equal(show(ok), "OK");
  assert.ok(error instanceof Failure && error.text === "ERR no");
  assert.deepEqual([number, nothing, yes, half], [-7, null, true, 1.5]);
  assert.deepEqual(of("$-1\r\n*-1\r\n,inf\r\n,-inf\r\n"), [null, null, Infinity, -Infinity]);
  assert.deepEqual(of(":9223372036854775807\r\n(12345678901234567890\r\n"), [
    9223372036854775807n,
    12345678901234567890n,
  ]);
  assert.deepEqual(of(""), []);
});

test("strings are bytes and may hold what ends lines", () => {
  const [string, verbatim, error] = of("$4\r\n\r\n+\xff\r\n=9\r\ntxt:a\r\n\nb\r\n!5\r\nERR x\r\n");
  assert.deepEqual([...string.bytes], [13, 10, 43, 255]);
  assert.equal(show(verbatim), "a\n\nb");
  assert.ok(error instanceof Failure && error.text === "ERR x");
});

test("aggregates hold others, attributes are passed over", () => {
  const [deep] = of("*2\r\n~2\r\n:1\r\n:2\r\n%1\r\n+k\r\n*1\r\n$1\r\nv\r\n");
  assert.deepEqual(deep[0], [1, 2]);
  assert.ok(deep[1] instanceof Pairs);
  assert.equal(show(deep), "1 2 k=v");
  assert.deepEqual(of("|1\r\n+k\r\n+v\r\n:5\r\n:6\r\n"), [5, 6]);
});

test("what is no reply is no reply", () => {
  assert.throws(() => of("hello\r\n"));
  assert.throws(() => of("$5"));
});

test("bytes are shown as text, and what was shown is read back", () => {
  for (const [shown, latin] of [
    ["plain", "plain"],
    ["\\xff\\xfe", "\xff\xfe"],
    ["a\\\\xff", "a\\xff"],
    ["é", "\xc3\xa9"],
    ["\\xc3", "\xc3"],
    ["x\\xe2\\x82", "x\xe2\x82"],
    ["€\\x80", "\xe2\x82\xac\x80"],
    ["😀", "\xf0\x9f\x98\x80"],
    ["\\xed\\xa0\\x80", "\xed\xa0\x80"],
    ["\\x00\\x0d\n\t", "\0\r\n\t"],
    ["\\u202eevil", "\xe2\x80\xaeevil"],
    ["<b>&amp;", "<b>&amp;"],
    ["", ""],
  ]) {
    assert.equal(text(raw(latin)), shown);
    assert.deepEqual(bytes(shown), raw(latin), shown);
  }
});

test("all bytes, one after the other and in pairs, come back", () => {
  const all = Uint8Array.from({ length: 65536 * 2 }, (_, at) => (at & 1 ? at >> 1 : at >> 9) & 255);
  assert.deepEqual(bytes(text(all)), all);
});

test("a call is written as the server reads it", () => {
  const call = encode(["SET", new Bytes(raw("\xff")), 12, raw("\r\n"), "é"]);
  const wanted = "*5\r\n$3\r\nSET\r\n$1\r\n\xff\r\n$2\r\n12\r\n$2\r\n\r\n\r\n$2\r\n\xc3\xa9\r\n";
  assert.deepEqual(call, raw(wanted));
});

test("maps and lists are pairs alike", () => {
  const [map, flat] = of("%1\r\n+k\r\n:1\r\n*2\r\n+k\r\n:1\r\n");
  assert.deepEqual(pairs(map), [["k", 1]]);
  assert.deepEqual(pairs(flat), [["k", 1]]);
  assert.equal(list(map).length, 2);
  assert.deepEqual([list(null), pairs(undefined), show(undefined)], [[], [], "(nil)"]);
});
