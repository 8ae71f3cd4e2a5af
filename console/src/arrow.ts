// The stream of Arrow that EXPORT answers, as rows: its schema, record batches, an end. Only the
// types are known that the server writes. The format:
// https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format

import { Bytes, Pairs, type Reply } from "./resp";

/** The numbers of Message.fbs and Schema.fbs. */
const SCHEMA = 1;
const RECORD_BATCH = 3;
const [INT, FLOATING_POINT, BINARY, UTF8, BOOL, TIMESTAMP, STRUCT, MAP] = [
  2, 3, 4, 5, 6, 10, 13, 17,
];

export interface Sheet {
  head: string[];
  rows: Reply[][];
}

interface Field {
  name: string;
  kind: number;
  children: Field[];
}

/** A table of a flatbuffer. A field that is not there is its default: nothing. */
class Table {
  constructor(
    readonly view: DataView,
    readonly at: number,
  ) {}

  private place(field: number): number {
    const names = this.at - this.view.getInt32(this.at, true);
    const offset = 4 + 2 * field;
    if (offset >= this.view.getUint16(names, true)) return 0;
    const found = this.view.getUint16(names + offset, true);
    return found && this.at + found;
  }

  byte(field: number): number {
    const at = this.place(field);
    return at && this.view.getUint8(at);
  }

  long(field: number): number {
    const at = this.place(field);
    return at && Number(this.view.getBigInt64(at, true));
  }

  private target(field: number): number {
    const at = this.place(field);
    return at && at + this.view.getUint32(at, true);
  }

  table(field: number): Table {
    return new Table(this.view, this.target(field));
  }

  text(field: number): string {
    const at = this.target(field);
    if (!at) return "";
    const length = this.view.getUint32(at, true);
    const bytes = new Uint8Array(this.view.buffer, this.view.byteOffset + at + 4, length);
    return new TextDecoder().decode(bytes);
  }

  tables(field: number): Table[] {
    const at = this.target(field);
    const count = at && this.view.getUint32(at, true);
    return Array.from({ length: count }, (_, index) => {
      const place = at + 4 + 4 * index;
      return new Table(this.view, place + this.view.getUint32(place, true));
    });
  }

  /** A vector of structs of two numbers. */
  couples(field: number): [number, number][] {
    const at = this.target(field);
    const count = at && this.view.getUint32(at, true);
    const number = (place: number) => Number(this.view.getBigInt64(place, true));
    return Array.from({ length: count }, (_, index) => {
      const place = at + 4 + 16 * index;
      return [number(place), number(place + 8)];
    });
  }
}

function fieldOf(table: Table): Field {
  return { name: table.text(0), kind: table.byte(2), children: table.tables(5).map(fieldOf) };
}

/** Reads the columns of one batch, in their order: each takes its nodes and its buffers. */
class Columns {
  private node = 0;
  private buffer = 0;
  private readonly nodes: [number, number][];
  private readonly buffers: [number, number][];

  constructor(
    batch: Table,
    private readonly body: Uint8Array,
  ) {
    this.nodes = batch.couples(1);
    this.buffers = batch.couples(2);
  }

  private nextBuffer(): DataView {
    const [start, length] = this.buffers[this.buffer++]!;
    return new DataView(this.body.buffer, this.body.byteOffset + start, length);
  }

  next(field: Field): Reply[] {
    const [length] = this.nodes[this.node++]!;
    const validity = this.nextBuffer();
    const isBit = (bits: DataView, at: number) => ((bits.getUint8(at >> 3) >> (at & 7)) & 1) === 1;
    const isThere = (at: number) => validity.byteLength === 0 || isBit(validity, at);
    const cells = (cell: (at: number) => Reply) =>
      Array.from({ length }, (_, at) => (isThere(at) ? cell(at) : null));
    switch (field.kind) {
      case STRUCT: {
        const parts = field.children.map((child) => this.next(child));
        return cells((at) => parts.map((part) => part[at]!));
      }
      case MAP: {
        const ends = this.nextBuffer();
        const entries = this.next(field.children[0]!);
        return cells((at) => {
          const from = ends.getInt32(4 * at, true);
          const until = ends.getInt32(4 * at + 4, true);
          return new Pairs(entries.slice(from, until) as [Reply, Reply][]);
        });
      }
      case UTF8:
      case BINARY: {
        const ends = this.nextBuffer();
        const bytes = this.nextBuffer();
        const all = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
        return cells(
          (at) =>
            new Bytes(all.slice(ends.getInt32(4 * at, true), ends.getInt32(4 * at + 4, true))),
        );
      }
      case BOOL: {
        const bits = this.nextBuffer();
        return cells((at) => isBit(bits, at));
      }
      case INT:
      case TIMESTAMP: {
        const words = this.nextBuffer();
        return cells((at) => {
          const word = words.getBigInt64(8 * at, true);
          const number = Number(word);
          if (field.kind === TIMESTAMP) return moment(number);
          return Number.isSafeInteger(number) ? number : word;
        });
      }
      case FLOATING_POINT: {
        const words = this.nextBuffer();
        return cells((at) => words.getFloat64(8 * at, true));
      }
      default:
        throw new Error(`columns of type ${field.kind} are unknown`);
    }
  }
}

/** Of milliseconds, in UTC; beyond what has a name as the number. */
function moment(ms: number): Reply {
  const date = new Date(ms);
  return isNaN(date.getTime()) ? ms : new Bytes(new TextEncoder().encode(date.toISOString()));
}

/** The rows of as much of a stream as is there. */
export function read(stream: Uint8Array): Sheet {
  const view = new DataView(stream.buffer, stream.byteOffset, stream.byteLength);
  let fields: Field[] = [];
  const rows: Reply[][] = [];
  for (let at = 0; at + 8 <= stream.length;) {
    const size = view.getUint32(at + 4, true);
    if (size === 0 || at + 8 + size > stream.length) break;
    const start = stream.byteOffset + at + 8;
    const metadata = new DataView(stream.buffer, start, size);
    const message = new Table(metadata, metadata.getUint32(0, true));
    const bodyLength = message.long(3);
    const body = stream.subarray(at + 8 + size, at + 8 + size + bodyLength);
    if (body.length < bodyLength) break;
    if (message.byte(1) === SCHEMA) fields = message.table(2).tables(1).map(fieldOf);
    if (message.byte(1) === RECORD_BATCH) {
      const columns = new Columns(message.table(2), body);
      const read = fields.map((field) => columns.next(field));
      const count = message.table(2).long(0);
      for (let row = 0; row < count; row++) rows.push(read.map((column) => column[row]!));
    }
    at += 8 + size + bodyLength;
  }
  return { head: fields.map((field) => field.name), rows };
}
