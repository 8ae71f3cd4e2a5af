// The protocol, as bytes: calls are written, replies are read. Strings stay bytes until somebody
// shows them, since keys and values may be anything.

export class Failure {
  constructor(readonly text: string) {}
}

/** Replies of the third version of the protocol. Maps and sets come as they are. */
export type Reply = null | boolean | number | bigint | Bytes | Failure | Reply[] | Pairs;

export class Pairs {
  constructor(readonly pairs: [Reply, Reply][]) {}
}

/** A string. */
export class Bytes {
  constructor(readonly bytes: Uint8Array) {}
  toString(): string {
    return text(this.bytes);
  }
}

const encoder = new TextEncoder();
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** As text; what is not UTF-8, or would not show, as `\xNN`, and `\` twice. */
export function text(bytes: Uint8Array): string {
  let shown = "";
  for (let at = 0; at < bytes.length;) {
    // As much as is UTF-8 at once; a piece of a long value begins and ends anywhere.
    const part = valid(bytes, at);
    shown += escape(strict.decode(bytes.subarray(at, part)).replace(/\\/g, "\\\\"));
    if (part < bytes.length) shown += hex(bytes[part]!);
    at = part + 1;
  }
  return shown;
}

/** Where the next byte is that is no part of UTF-8; the end if there is none. */
function valid(bytes: Uint8Array, from: number): number {
  const follows = (at: number, least = 0x80, most = 0xbf) =>
    (bytes[at] ?? 0) >= least && (bytes[at] ?? 0) <= most;
  let at = from;
  while (at < bytes.length) {
    const byte = bytes[at]!;
    if (byte < 0x80) at += 1;
    else if (byte >= 0xc2 && byte <= 0xdf && follows(at + 1)) at += 2;
    else if (
      byte >= 0xe0 &&
      byte <= 0xef &&
      follows(at + 1, byte === 0xe0 ? 0xa0 : 0x80, byte === 0xed ? 0x9f : 0xbf) &&
      follows(at + 2)
    )
      at += 3;
    else if (
      byte >= 0xf0 &&
      byte <= 0xf4 &&
      follows(at + 1, byte === 0xf0 ? 0x90 : 0x80, byte === 0xf4 ? 0x8f : 0xbf) &&
      follows(at + 2) &&
      follows(at + 3)
    )
      at += 4;
    else return at;
  }
  return at;
}

const hex = (byte: number) => "\\x" + byte.toString(16).padStart(2, "0");

// Control characters, which a box for text would change or hide, and those that turn the direction
// of text around.
const escape = (text: string) =>
  text
    .replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, (char) => hex(char.charCodeAt(0)))
    .replace(
      /[\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
      (char) => "\\u" + char.charCodeAt(0).toString(16),
    );

/** The bytes that `text` shows so. */
export function bytes(shown: string): Uint8Array {
  const parts: Uint8Array[] = [];
  const pattern = /\\x([0-9a-fA-F]{2})|\\u(20[0-9a-f]{2})|\\\\|[^\\]+|\\/g;
  for (const [part, byte, unit] of shown.matchAll(pattern)) {
    if (byte) parts.push(Uint8Array.of(parseInt(byte, 16)));
    else if (unit) parts.push(encoder.encode(String.fromCharCode(parseInt(unit, 16))));
    else parts.push(encoder.encode(part === "\\\\" ? "\\" : part));
  }
  return join(parts);
}

export function join(parts: Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

export type Word = string | number | Uint8Array | Bytes;

export function encode(call: Word[]): Uint8Array {
  const parts: Uint8Array[] = [encoder.encode(`*${call.length}\r\n`)];
  for (const word of call) {
    const raw =
      word instanceof Bytes
        ? word.bytes
        : word instanceof Uint8Array
          ? word
          : encoder.encode(String(word));
    parts.push(encoder.encode(`$${raw.length}\r\n`), raw, encoder.encode("\r\n"));
  }
  return join(parts);
}

/** All replies of an answer. */
export function decode(raw: Uint8Array): Reply[] {
  const reader = new Reader(raw);
  const replies: Reply[] = [];
  while (!reader.isDone()) replies.push(reader.next());
  return replies;
}

class Reader {
  private at = 0;
  constructor(private readonly raw: Uint8Array) {}

  isDone = () => this.at >= this.raw.length;

  private line(): Uint8Array {
    const end = this.raw.indexOf(13, this.at);
    if (end < 0) throw new Error("half a reply");
    const line = this.raw.slice(this.at, end);
    this.at = end + 2;
    return line;
  }

  private list(count: number): Reply[] {
    return Array.from({ length: count }, () => this.next());
  }

  next(): Reply {
    const kind = String.fromCharCode(this.raw[this.at++] ?? 0);
    const raw = this.line();
    const line = text(raw);
    const count = Number(line);
    switch (kind) {
      case "+":
        return new Bytes(raw);
      case "-":
        return new Failure(line);
      case ":":
        return Number.isSafeInteger(count) ? count : BigInt(line);
      case ",":
        return line === "inf" ? Infinity : line === "-inf" ? -Infinity : count;
      case "#":
        return line === "t";
      case "(":
        return BigInt(line);
      case "_":
        return null;
      case "$":
      case "=":
      case "!": {
        if (count < 0) return null;
        const skipped = kind === "=" ? 4 : 0;
        const part = this.raw.slice(this.at + skipped, this.at + count);
        this.at += count + 2;
        // What the server words, as INFO, and nobody stores.
        if (kind === "=")
          return new Bytes(part.filter((byte, at) => byte !== 13 || part[at + 1] !== 10));
        return kind === "!" ? new Failure(text(part)) : new Bytes(part);
      }
      case "*":
      case "~":
      case ">":
        return count < 0 ? null : this.list(count);
      case "%":
        return new Pairs(
          this.list(count * 2).reduce<[Reply, Reply][]>((pairs, value, at) => {
            if (at % 2) pairs[pairs.length - 1]![1] = value;
            else pairs.push([value, null]);
            return pairs;
          }, []),
        );
      case "|":
        this.list(count * 2);
        return this.next();
      default:
        throw new Error("this is no reply");
    }
  }
}

/** As a list, whatever it came as. */
export function list(reply: Reply | undefined): Reply[] {
  if (Array.isArray(reply)) return reply;
  if (reply instanceof Pairs) return reply.pairs.flat();
  return [];
}

/** Pairs, of a map or of a list that is one. */
export function pairs(reply: Reply | undefined): [string, Reply][] {
  const all = list(reply);
  const found: [string, Reply][] = [];
  for (let at = 0; at + 1 < all.length; at += 2) found.push([show(all[at]!), all[at + 1]!]);
  return found;
}

/** On one line. */
export function show(reply: Reply | undefined): string {
  if (reply === null || reply === undefined) return "(nil)";
  if (reply instanceof Failure) return reply.text;
  if (Array.isArray(reply)) return reply.map(show).join(" ");
  if (reply instanceof Pairs)
    return reply.pairs.map(([key, value]) => `${show(key)}=${show(value)}`).join(" ");
  return String(reply);
}
