// Keys as a tree, and what each holds: big values come page by page.

import { useEffect, useState } from "preact/hooks";
import { call, calls, state } from "./api";
import { size } from "./live";
import { Bytes, Failure, type Reply, type Word, bytes, list, pairs, show } from "./resp";

const PAGE = 100;
const CHUNK = 16 * 1024;
/** Keys that are shown at once. */
const MOST = 2000;

interface Node {
  name: string;
  key?: Bytes;
  below: Map<string, Node>;
  count: number;
}

function grow(keys: Bytes[], separator: string): Node {
  const root: Node = { name: "", below: new Map(), count: 0 };
  for (const key of keys) {
    const parts = separator ? show(key).split(separator) : [show(key)];
    let node = root;
    parts.forEach((part, at) => {
      const isLast = at === parts.length - 1;
      const name = isLast ? `k${part}` : `f${part}`;
      if (!node.below.has(name)) node.below.set(name, { name: part, below: new Map(), count: 0 });
      node.count++;
      node = node.below.get(name)!;
      if (isLast) node.key = key;
    });
  }
  return root;
}

function Branch({
  node,
  separator,
  onPick,
}: {
  node: Node;
  separator: string;
  onPick: (key: Bytes) => void;
}) {
  const [isOpen, setIsOpen] = useState(false);
  if (node.key)
    return (
      <li>
        <button class="key" onClick={() => onPick(node.key!)}>
          {node.name || '""'}
        </button>
      </li>
    );
  return (
    <li>
      <button class="folder" onClick={() => setIsOpen(!isOpen)}>
        {isOpen ? "▾" : "▸"} {node.name}
        {separator} <small>{node.count}</small>
      </button>
      {isOpen && (
        <ul>
          {[...node.below.values()].map((child) => (
            <Branch node={child} separator={separator} onPick={onPick} />
          ))}
        </ul>
      )}
    </li>
  );
}

export function Keys() {
  const [keys, setKeys] = useState<Bytes[]>([]);
  const [cursor, setCursor] = useState("0");
  const [failure, setFailure] = useState("");
  const [pattern, setPattern] = useState("*");
  const [type, setType] = useState("");
  const [separator, setSeparator] = useState(":");
  const [db, setDb] = useState(0);
  const [picked, setPicked] = useState<Bytes | null>(null);
  /** Goes through keys until some are found, but not for ever at once. */
  const look = async (from: string, known: Bytes[]) => {
    const found = new Map(known.map((key) => [show(key), key]));
    let at = from;
    const until = Date.now() + 2000;
    do {
      const scan: Word[] = ["SCAN", at, "MATCH", bytes(pattern || "*"), "COUNT", 2000];
      const [, reply] = await calls([["SELECT", db], type ? [...scan, "TYPE", type] : scan]);
      if (reply instanceof Failure) return setFailure(reply.text);
      at = show(list(reply)[0]);
      for (const key of list(list(reply)[1])) found.set(show(key), key as Bytes);
    } while (at !== "0" && found.size < known.length + PAGE && Date.now() < until);
    setFailure("");
    setCursor(at);
    setKeys([...found.values()].sort((one, other) => (show(one) < show(other) ? -1 : 1)));
  };
  useEffect(() => void look("0", []), [db, type]);
  const isExact = !/[*?[]/.test(pattern) && pattern !== "";
  const root = grow(keys.slice(0, MOST), separator);
  return (
    <div class="split">
      <section class="card">
        <form
          class="line"
          onSubmit={(event) => {
            event.preventDefault();
            if (isExact) setPicked(new Bytes(bytes(pattern)));
            void look("0", []);
          }}
        >
          <input
            value={pattern}
            aria-label="pattern"
            onInput={(event) => setPattern(event.currentTarget.value)}
          />
          <button>Find</button>
        </form>
        <div class="line">
          <label>
            db{" "}
            <input
              class="short"
              type="number"
              min={0}
              value={db}
              onChange={(event) => setDb(Number(event.currentTarget.value))}
            />
          </label>
          <label>
            type{" "}
            <select value={type} onChange={(event) => setType(event.currentTarget.value)}>
              {["", "string", "list", "set", "zset", "hash", "stream"].map((name) => (
                <option value={name}>{name || "any"}</option>
              ))}
            </select>
          </label>
          <label>
            separator{" "}
            <input
              class="short"
              value={separator}
              onInput={(event) => setSeparator(event.currentTarget.value)}
            />
          </label>
        </div>
        {failure && <p class="failure">Keys are not shown: {failure}</p>}
        <ul class="tree">
          {[...root.below.values()].map((node) => (
            <Branch node={node} separator={separator} onPick={setPicked} />
          ))}
        </ul>
        {cursor !== "0" && (
          <button onClick={() => void look(cursor, keys)}>More ({keys.length} so far)</button>
        )}
      </section>
      {picked && (
        <Value
          key={`${db} ${show(picked)}`}
          name={picked}
          db={db}
          onGone={() => {
            setPicked(null);
            void look("0", []);
          }}
        />
      )}
    </div>
  );
}

interface Facts {
  type: string;
  ttl: number;
  bytes: number;
  encoding: string;
  length: number;
}

const LENGTHS: Record<string, string> = {
  string: "STRLEN",
  list: "LLEN",
  set: "SCARD",
  zset: "ZCARD",
  hash: "HLEN",
  stream: "XLEN",
};

function Value({ name, db, onGone }: { name: Bytes; db: number; onGone: () => void }) {
  const [facts, setFacts] = useState<Facts | null>(null);
  const [failure, setFailure] = useState("");
  const [version, setVersion] = useState(0);
  const ask = async (...all: Word[][]) => (await calls([["SELECT", db], ...all])).slice(1);
  useEffect(() => {
    void (async () => {
      const [type] = await ask(["TYPE", name]);
      if (type instanceof Failure) return setFailure(type.text);
      const kind = show(type);
      if (kind === "none") return setFailure("There is no such key.");
      const [ttl, memory, encoding, length] = await ask(
        ["PTTL", name],
        ["MEMORY", "USAGE", name],
        ["OBJECT", "ENCODING", name],
        [LENGTHS[kind] ?? "EXISTS", name],
      );
      setFacts({
        type: kind,
        ttl: Number(show(ttl)),
        bytes: Number(show(memory)) || 0,
        encoding: show(encoding),
        length: Number(show(length)) || 0,
      });
    })();
  }, [version]);
  /** Changes something, and shows what there is then. */
  const change = async (...words: Word[]) => {
    const [reply] = await ask(words);
    setFailure(reply instanceof Failure ? reply.text : "");
    setVersion(version + 1);
    return !(reply instanceof Failure);
  };
  const remove = async () => {
    if (confirm(`Delete ${show(name)}?`) && (await change("DEL", name))) onGone();
  };
  const expire = () => {
    const seconds = prompt("Seconds to live; empty: for ever", "");
    if (seconds !== null)
      void (seconds ? change("EXPIRE", name, seconds) : change("PERSIST", name));
  };
  return (
    <section class="card value">
      <h2>{show(name)}</h2>
      {failure && (
        <p class="failure" role="alert">
          {failure}
        </p>
      )}
      {facts && (
        <>
          <p class="facts">
            {facts.type}, {facts.encoding}, {facts.length}{" "}
            {facts.type === "string" ? "bytes" : "members"}, {size(facts.bytes)} in memory,{" "}
            {facts.ttl < 0 ? "no expiry" : `${(facts.ttl / 1000).toFixed(0)} s to live`}
          </p>
          {state.mayWrite && (
            <p>
              <button onClick={expire}>Expiry</button>{" "}
              <button class="danger" onClick={() => void remove()}>
                Delete
              </button>
            </p>
          )}
          {facts.type === "string" ? (
            <Text key={version} name={name} length={facts.length} ask={ask} change={change} />
          ) : (
            <Members key={version} name={name} type={facts.type} ask={ask} change={change} />
          )}
        </>
      )}
    </section>
  );
}

type Ask = (...all: Word[][]) => Promise<Reply[]>;
type Change = (...words: Word[]) => Promise<boolean>;

function Text({
  name,
  length,
  ask,
  change,
}: {
  name: Bytes;
  length: number;
  ask: Ask;
  change: Change;
}) {
  const [at, setAt] = useState(0);
  const [text, setText] = useState("");
  const isWhole = length <= CHUNK;
  useEffect(
    () => void ask(["GETRANGE", name, at, at + CHUNK - 1]).then(([reply]) => setText(show(reply))),
    [at],
  );
  return (
    <>
      <textarea
        value={text}
        rows={12}
        readOnly={!state.mayWrite || !isWhole}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      {!isWhole && (
        <p>
          <button disabled={at === 0} onClick={() => setAt(at - CHUNK)}>
            Before
          </button>{" "}
          bytes {at} to {Math.min(length, at + CHUNK)} of {length}{" "}
          <button disabled={at + CHUNK >= length} onClick={() => setAt(at + CHUNK)}>
            After
          </button>
        </p>
      )}
      {state.mayWrite && isWhole && (
        <button onClick={() => void change("SET", name, bytes(text), "KEEPTTL")}>Store</button>
      )}
    </>
  );
}

/** A row of a value: what is shown, and how it is removed. */
interface Member {
  cells: string[];
  remove: Word[];
}

/** How each type is paged, and what adds to it. */
function Members({
  name,
  type,
  ask,
  change,
}: {
  name: Bytes;
  type: string;
  ask: Ask;
  change: Change;
}) {
  const [rows, setRows] = useState<Member[]>([]);
  const [next, setNext] = useState<string | null>("start");
  const more = async (from: string) => {
    const offset = from === "start" ? 0 : Number(from);
    const cursor = from === "start" ? "0" : from;
    const word = (reply: Reply | undefined): Word => (reply instanceof Bytes ? reply : show(reply));
    const paged = (found: Member[], after: string | null) => {
      setRows((rows) => (from === "start" ? found : [...rows, ...found]));
      setNext(after);
    };
    if (type === "list") {
      const [reply] = await ask(["LRANGE", name, offset, offset + PAGE - 1]);
      const all = list(reply);
      // Whichever of several that are equal it is, one at that place goes.
      return paged(
        all.map((value, at) => ({
          cells: [String(offset + at), show(value)],
          remove: ["LREM", name, 1, word(value)],
        })),
        all.length < PAGE ? null : String(offset + PAGE),
      );
    }
    if (type === "zset") {
      const [reply] = await ask(["ZRANGE", name, offset, offset + PAGE - 1, "WITHSCORES"]);
      const all = list(reply).map((pair) => list(pair));
      return paged(
        all.map(([member, score]) => ({
          cells: [show(member), show(score)],
          remove: ["ZREM", name, word(member)],
        })),
        all.length < PAGE ? null : String(offset + PAGE),
      );
    }
    if (type === "stream") {
      const [reply] = await ask([
        "XRANGE",
        name,
        from === "start" ? "-" : `(${from}`,
        "+",
        "COUNT",
        PAGE,
      ]);
      const all = list(reply).map((entry) => list(entry));
      const last = all.at(-1)?.[0];
      return paged(
        all.map(([id, fields]) => ({
          cells: [
            show(id),
            pairs(fields)
              .map(([field, value]) => `${field}=${show(value)}`)
              .join("  "),
          ],
          remove: ["XDEL", name, show(id)],
        })),
        all.length < PAGE ? null : show(last),
      );
    }
    const scan = type === "hash" ? "HSCAN" : "SSCAN";
    const [reply] = await ask([scan, name, cursor, "COUNT", PAGE]);
    const all = list(list(reply)[1]);
    const after = show(list(reply)[0]);
    const found: Member[] = [];
    for (let at = 0; at < all.length; at += type === "hash" ? 2 : 1) {
      found.push(
        type === "hash"
          ? { cells: [show(all[at]), show(all[at + 1])], remove: ["HDEL", name, word(all[at])] }
          : { cells: [show(all[at])], remove: ["SREM", name, word(all[at])] },
      );
    }
    paged(found, after === "0" ? null : after);
  };
  useEffect(() => void more("start"), []);
  return (
    <>
      {state.mayWrite && (
        <Add type={type} onAdd={(...words) => void change(words[0]!, name, ...words.slice(1))} />
      )}
      <table class="members">
        <tbody>
          {rows.map((row) => (
            <tr>
              {row.cells.map((cell) => (
                <td>{cell.length > 2000 ? `${cell.slice(0, 2000)}… (${cell.length})` : cell}</td>
              ))}
              {state.mayWrite && (
                <td class="act">
                  <button title="remove" onClick={() => void change(...row.remove)}>
                    ✕
                  </button>
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
      {next && <button onClick={() => void more(next)}>More</button>}
    </>
  );
}

const FIELDS: Record<string, [command: string, first: string, second?: string]> = {
  list: ["RPUSH", "value"],
  set: ["SADD", "member"],
  zset: ["ZADD", "member", "score"],
  hash: ["HSET", "field", "value"],
  stream: ["XADD", "field", "value"],
};

function Add({ type, onAdd }: { type: string; onAdd: (...words: Word[]) => void }) {
  const [command, one, other] = FIELDS[type] ?? ["", ""];
  if (!command) return null;
  const submit = (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.target as HTMLFormElement);
    const [first, second] = [
      bytes(String(form.get("one"))),
      bytes(String(form.get("other") ?? "")),
    ];
    if (type === "zset") onAdd(command, second, first);
    else if (type === "stream") onAdd(command, "*", first, second);
    else if (other) onAdd(command, first, second);
    else onAdd(command, first);
  };
  return (
    <form class="line" onSubmit={submit}>
      <input name="one" placeholder={one} aria-label={one} />
      {other && <input name="other" placeholder={other} aria-label={other} />}
      <button>{type === "hash" || type === "zset" ? "Set" : "Add"}</button>
    </form>
  );
}
