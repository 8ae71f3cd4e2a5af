// Numbers as people read them.

import assert from "node:assert/strict";
import test from "node:test";
import { duration, number, parseInfo, parts, plain, size, slowest } from "../src/figures";

test("INFO is read line by line", () => {
  const info = parseInfo("# Server\r\nredis_version:7.2\r\nempty:\r\n\r\nslave0:ip=::1,port=1\r\n");
  assert.deepEqual([...info.keys()], ["redis_version", "empty", "slave0"]);
  assert.equal(number(info, "redis_version"), 7.2);
  assert.equal(number(info, "nosuch"), 0);
  assert.deepEqual(
    [...parts(info.get("slave0"))],
    [
      ["ip", "::1"],
      ["port", "1"],
    ],
  );
});

test("the slowest command is that of this second", () => {
  const info = (...lines) => parseInfo(lines.map((line) => `cmdstat_${line}`).join("\n"));
  const before = info("get:calls=10,usec=1000,usec_per_call=100.00", "sort:calls=1,usec=90000");
  assert.equal(slowest(before, before), null);
  assert.deepEqual(slowest(info("get:calls=12,usec=1006", "sort:calls=1,usec=90000"), before), [
    "get",
    3,
  ]);
  assert.deepEqual(slowest(info("get:calls=12,usec=1006", "config|set:calls=1,usec=9"), before), [
    "config|set",
    9,
  ]);
  // After CONFIG RESETSTAT.
  assert.equal(slowest(info("get:calls=2,usec=6"), before), null);
});

test("sizes, numbers and times are short", () => {
  assert.deepEqual([0, 1023, 1024, 10.5 * 1024 ** 2, 5 * 1024 ** 4, 4096 * 1024 ** 4].map(size), [
    "0 B",
    "1023 B",
    "1.00 KiB",
    "10.5 MiB",
    "5.00 TiB",
    "4096.0 TiB",
  ]);
  assert.deepEqual([0, 1.23456, 9999, 12345, 1234567, 2e9, -12345].map(plain), [
    "0",
    "1.235",
    "9999",
    "12.3k",
    "1.2M",
    "2.00e+9",
    "-12.3k",
  ]);
  assert.deepEqual([0, 119, 120, 7200, 172800].map(duration), [
    "0 s",
    "119 s",
    "2 min",
    "2 h",
    "2 days",
  ]);
});
