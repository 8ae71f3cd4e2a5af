// The members of a value, page by page: how each type is read, and how a member is added, changed
// and removed.

import { useEffect, useRef, useState } from "preact/hooks";
import { state } from "./api";
import { Bytes, Failure, Pairs, type Reply, type Word, bytes, list, pairs, show } from "./resp";
import { Rows } from "./sheet";
import type { Ask, Change } from "./value";

/** Members of a page, and bytes that it is to have: fewer members, if they are large. */
const PAGE = 100;
const PAGE_BYTES = 4 << 20;
/** Characters of a cell that are shown. */
const CELL = 2000;

interface Cell {
  text: string;
  /** The calls that make it something else. */
  edit?: (now: Uint8Array) => Word[][];
}

interface Row {
  cells: Cell[];
  remove: Word[][];
  /** What has to be so for its calls to mean this row: a call, and its reply. */
  check?: [Word[], string];
}

interface Page {
  rows: Row[];
  /** Where the next page begins. */
  next: string | null;
}

interface Kind {
  head: string[];
  /** Whether pages begin at a place that somebody may name. */
  start?: string;
  /** Whether a pattern chooses members. */
  hasPattern: boolean;
  isRanked?: boolean;
  read: (name: Bytes, from: string, wish: Wish, ask: Ask) => Promise<Page | Failure>;
}

interface Wish {
  pattern: string;
  isReversed: boolean;
  /** Members that a page may have. */
  most: number;
}

const word = (reply: Reply | undefined): Word => (reply instanceof Bytes ? reply : show(reply));
const cell = (reply: Reply | undefined, edit?: Cell["edit"]): Cell => ({ text: show(reply), edit });
/** A page; of fewer members, down to one, if these are too long for one reply. */
async function readPage(kind: Kind, name: Bytes, from: string, wish: Wish, ask: Ask) {
  for (let most = wish.most; ; most = Math.ceil(most / 4)) {
    const found = await kind.read(name, from, { ...wish, most }, ask);
    const isTooLong = found instanceof Failure && found.text.startsWith("TOOLONG");
    if (!isTooLong || most === 1) return found;
  }
}

/** A value that nobody else has, for an element of a list that is about to go. */
const mark = () => `kvasir-console:${crypto.getRandomValues(new Uint32Array(4)).join("-")}`;

async function scan(
  command: string,
  name: Bytes,
  from: string,
  { pattern, most }: Wish,
  ask: Ask,
): Promise<[Reply[], string | null] | Failure> {
  const match: Word[] = pattern ? ["MATCH", bytes(pattern)] : [];
  let cursor = from || "0";
  let found: Reply[] = [];
  // With a pattern most turns find nothing.
  do {
    const count = pattern ? 10 * most : most;
    const [reply] = await ask([command, name, cursor, ...match, "COUNT", count]);
    if (reply instanceof Failure) return reply;
    cursor = show(list(reply)[0]);
    found = found.concat(list(list(reply)[1]));
  } while (cursor !== "0" && found.length < (pattern ? most : 1));
  return [found, cursor === "0" ? null : cursor];
}

const kinds: Record<string, Kind> = {
  list: {
    head: ["index", "element"],
    start: "index",
    hasPattern: false,
    read: async (name, from, { most }, ask) => {
      const first = Math.max(0, Number(from) || 0);
      const [reply] = await ask(["LRANGE", name, first, first + most - 1]);
      if (reply instanceof Failure) return reply;
      const rows = list(reply).map((value, of): Row => {
        const at = first + of;
        const gone = mark();
        return {
          cells: [{ text: String(at) }, cell(value, (now) => [["LSET", name, at, now]])],
          // Of several that are equal it is to be this one.
          remove: [
            ["LSET", name, at, gone],
            ["LREM", name, 1, gone],
          ],
          check: [["LINDEX", name, at], show(value)],
        };
      });
      return { rows, next: rows.length < most ? null : String(first + most) };
    },
  },
  set: {
    head: ["member"],
    hasPattern: true,
    read: async (name, from, wish, ask) => {
      const found = await scan("SSCAN", name, from, wish, ask);
      if (found instanceof Failure) return found;
      const rows = found[0].map((member): Row => {
        const remove = [["SREM", name, word(member)]];
        return { cells: [cell(member, (now) => [["SADD", name, now], ...remove])], remove };
      });
      return { rows, next: found[1] };
    },
  },
  zset: {
    head: ["member", "score"],
    start: "rank",
    hasPattern: true,
    isRanked: true,
    read: async (name, from, wish, ask) => {
      const row = (member: Reply | undefined, score: Reply | undefined): Row => {
        const [remove, shown] = [[["ZREM", name, word(member)]], show(score)];
        return {
          cells: [
            cell(member, (now) => [["ZADD", name, shown, now], ...remove]),
            { text: shown, edit: (now) => [["ZADD", name, "XX", now, word(member)]] },
          ],
          remove,
        };
      };
      if (wish.pattern) {
        const found = await scan("ZSCAN", name, from, wish, ask);
        if (found instanceof Failure) return found;
        const flat = found[0].flat() as Reply[];
        const rows = flat.flatMap((member, at) => (at % 2 ? [] : [row(member, flat[at + 1])]));
        return { rows, next: found[1] };
      }
      const first = Math.max(0, Number(from) || 0);
      const order = wish.isReversed ? ["REV"] : [];
      const [reply] = await ask([
        ...["ZRANGE", name, first, first + wish.most - 1],
        ...order,
        "WITHSCORES",
      ]);
      if (reply instanceof Failure) return reply;
      const rows = list(reply).map((pair) => row(list(pair)[0], list(pair)[1]));
      return { rows, next: rows.length < wish.most ? null : String(first + wish.most) };
    },
  },
  hash: {
    head: ["field", "value", "expiry"],
    hasPattern: true,
    read: async (name, from, wish, ask) => {
      const found = await scan("HSCAN", name, from, wish, ask);
      if (found instanceof Failure) return found;
      const fields = found[0].filter((_, at) => at % 2 === 0);
      const ttls = fields.length
        ? await ask(["HPTTL", name, "FIELDS", fields.length, ...fields.map(word)])
        : [];
      const rows = fields.map((field, of): Row => {
        const ttl = Number(show(list(ttls[0])[of]));
        const lives = ttl >= 0;
        return {
          cells: [
            cell(field),
            cell(found[0][2 * of + 1], (now) =>
              // A plain HSET would have the field live for ever.
              lives
                ? [["HSETEX", name, "KEEPTTL", "FIELDS", 1, word(field), now]]
                : [["HSET", name, word(field), now]],
            ),
            { text: lives ? `${(ttl / 1000).toFixed(0)} s` : "" },
          ],
          remove: [["HDEL", name, word(field)]],
        };
      });
      return { rows, next: found[1] };
    },
  },
  stream: {
    head: ["id", "fields"],
    start: "id",
    hasPattern: false,
    isRanked: true,
    read: async (name, from, wish, ask) => {
      const [low, high] = wish.isReversed ? ["-", from || "+"] : [from || "-", "+"];
      const [reply] = wish.isReversed
        ? await ask(["XREVRANGE", name, high, low, "COUNT", wish.most])
        : await ask(["XRANGE", name, low, high, "COUNT", wish.most]);
      if (reply instanceof Failure) return reply;
      const rows = list(reply).map((entry): Row => {
        const [id, fields] = list(entry);
        const shown = pairs(fields).map(([field, value]) => `${field}: ${show(value)}`);
        return {
          cells: [cell(id), { text: shown.join("\n") }],
          remove: [["XDEL", name, show(id)]],
        };
      });
      const last = rows.at(-1)?.cells[0]!.text;
      return { rows, next: rows.length < wish.most ? null : `(${last}` };
    },
  },
};

export function Members({
  name,
  type,
  length,
  average,
  version,
  ask,
  change,
}: {
  name: Bytes;
  type: string;
  length: number;
  /** Bytes of a member. */
  average: number;
  version: number;
  ask: Ask;
  change: Change;
}) {
  const kind = kinds[type];
  const [starts, setStarts] = useState([""]);
  const [wish, setWish] = useState<Wish>({
    pattern: "",
    isReversed: false,
    most: Math.max(1, Math.min(PAGE, Math.floor(PAGE_BYTES / average))),
  });
  const [page, setPage] = useState<Page>({ rows: [], next: null });
  const [failure, setFailure] = useState("");
  const asked = useRef(0);
  useEffect(() => {
    const me = ++asked.current;
    if (!kind || !length) return setPage({ rows: [], next: null });
    void readPage(kind, name, starts.at(-1)!, wish, ask).then((found) => {
      if (me !== asked.current) return;
      const isThere = !(found instanceof Failure);
      setFailure(isThere ? "" : found.text);
      setPage(isThere ? found : { rows: [], next: null });
    });
  }, [version, starts, wish, length]);
  if (!kind) return <p>A value of the type {type} is not shown here.</p>;
  const anew = (now: Partial<Wish>) => {
    setStarts([""]);
    setWish({ ...wish, ...now });
  };
  /** Makes the calls, if the row is still what is shown. */
  const act = async ({ check }: Row, all: Word[][]) => {
    const [is] = check ? await ask(check[0]) : [];
    if (check && show(is) !== check[1]) return setFailure("It has changed meanwhile: look again.");
    await change(...all);
  };
  return (
    <>
      {state.mayWrite && <Add type={type} name={name} change={change} />}
      <div class="line">
        {kind.hasPattern && (
          <input
            placeholder="pattern"
            aria-label="pattern of members"
            onChange={(event) => anew({ pattern: event.currentTarget.value })}
          />
        )}
        {kind.start && !wish.pattern && (
          <label>
            from {kind.start}{" "}
            <input
              class="short"
              aria-label={`from ${kind.start}`}
              onChange={(event) => setStarts([event.currentTarget.value])}
            />
          </label>
        )}
        {kind.isRanked && !wish.pattern && (
          <label>
            <input
              type="checkbox"
              checked={wish.isReversed}
              onChange={(event) => anew({ isReversed: event.currentTarget.checked })}
            />{" "}
            last first
          </label>
        )}
      </div>
      {failure && (
        <p class="failure" role="alert">
          {failure}
        </p>
      )}
      <table class="members">
        <thead>
          <tr>
            {kind.head.map((name) => (
              <th>{name}</th>
            ))}
            {state.mayWrite && <th />}
          </tr>
        </thead>
        <tbody>
          {page.rows.map((row) => (
            <tr key={row.cells.map((cell) => cell.text).join("\n")}>
              {row.cells.map((cell) => (
                <Editable cell={cell} onStore={(all) => void act(row, all)} />
              ))}
              {state.mayWrite && (
                <td class="act">
                  <button
                    title="remove"
                    aria-label="remove"
                    onClick={() => void act(row, row.remove)}
                  >
                    ✕
                  </button>
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
      {(starts.length > 1 || page.next !== null) && (
        <p class="pages">
          <button disabled={starts.length < 2} onClick={() => setStarts(starts.slice(0, -1))}>
            Before
          </button>
          <span>page {starts.length}</span>
          <button disabled={page.next === null} onClick={() => setStarts([...starts, page.next!])}>
            After
          </button>
        </p>
      )}
      {type === "stream" && <Groups name={name} ask={ask} />}
    </>
  );
}

/** What a cell holds; a click on the pen makes it a box. */
function Editable({ cell, onStore }: { cell: Cell; onStore: (all: Word[][]) => void }) {
  const [text, setText] = useState<string | null>(null);
  const shown =
    cell.text.length > CELL ? `${cell.text.slice(0, CELL)}… (${cell.text.length})` : cell.text;
  if (text === null || !state.mayWrite || !cell.edit)
    return (
      <td>
        {shown}
        {state.mayWrite && cell.edit && (
          <button class="pen" title="change" aria-label="change" onClick={() => setText(cell.text)}>
            ✎
          </button>
        )}
      </td>
    );
  const store = () => {
    setText(null);
    if (text !== cell.text) onStore(cell.edit!(bytes(text)));
  };
  return (
    <td>
      <textarea
        value={text}
        rows={Math.min(12, text.split("\n").length)}
        aria-label="new value"
        spellcheck={false}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <button onClick={store}>Store</button> <button onClick={() => setText(null)}>Leave</button>
    </td>
  );
}

/** What a form for one more asks for, and the call that adds it. */
const adding: Record<string, { boxes: string[]; ways: string[] }> = {
  list: { boxes: ["element"], ways: ["RPUSH", "LPUSH"] },
  set: { boxes: ["member"], ways: ["SADD"] },
  zset: { boxes: ["member", "score"], ways: ["ZADD"] },
  hash: { boxes: ["field", "value"], ways: ["HSET"] },
  stream: { boxes: ["fields"], ways: ["XADD"] },
};
const BUTTONS: Record<string, string> = {
  RPUSH: "At the end",
  LPUSH: "At the beginning",
  HSET: "Set",
  ZADD: "Set",
};

function Add({ type, name, change }: { type: string; name: Bytes; change: Change }) {
  const { boxes, ways } = adding[type]!;
  const [values, setValues] = useState<string[]>([]);
  const add = async (way: string) => {
    const given = boxes.map((_, at) => bytes(values[at] ?? ""));
    const words: Word[] =
      way === "XADD"
        ? ["*", ...(values[0] ?? "").split("\n").filter(Boolean).flatMap(pair)]
        : way === "ZADD"
          ? [given[1]!, given[0]!]
          : given;
    if (await change([way, name, ...words])) setValues([]);
  };
  return (
    <form
      class="line"
      onSubmit={(event) => {
        event.preventDefault();
        void add(ways[0]!);
      }}
    >
      {boxes.map((box, at) => {
        const facts = {
          placeholder: box === "fields" ? "field: value, one a line" : box,
          "aria-label": box,
          value: values[at] ?? "",
          onInput: (event: { currentTarget: { value: string } }) =>
            setValues(
              boxes.map((_, of) => (of === at ? event.currentTarget.value : (values[of] ?? ""))),
            ),
        };
        return box === "fields" ? <textarea rows={2} {...facts} /> : <input {...facts} />;
      })}
      {ways.map((way, at) => (
        <button type={at ? "button" : "submit"} onClick={at ? () => void add(way) : undefined}>
          {BUTTONS[way] ?? "Add"}
        </button>
      ))}
    </form>
  );
}

/** A line `field: value`. */
function pair(line: string): Uint8Array[] {
  const at = line.indexOf(":");
  return at < 0
    ? [bytes(line), bytes("")]
    : [bytes(line.slice(0, at)), bytes(line.slice(at + 1).trimStart())];
}

/** Who reads a stream in groups. */
function Groups({ name, ask }: { name: Bytes; ask: Ask }) {
  const [groups, setGroups] = useState<Reply[]>([]);
  useEffect(
    () => void ask(["XINFO", "GROUPS", name]).then(([reply]) => setGroups(list(reply))),
    [],
  );
  if (!groups.length) return null;
  const head = ["name", "consumers", "pending", "last-delivered-id", "lag"];
  const rows = groups.map((group) => {
    const facts = new Map(pairs(group instanceof Pairs ? group : list(group)));
    return head.map((of) => facts.get(of) ?? null);
  });
  return (
    <>
      <h3>Groups</h3>
      <Rows head={head} rows={rows} />
    </>
  );
}
