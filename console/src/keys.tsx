// Keys as a tree with what they are, and a way to find one among many.

import { useEffect, useRef, useState } from "preact/hooks";
import { callsIn, state } from "./api";
import { duration, plain, size } from "./figures";
import { Choice } from "./parts";
import { Bytes, Failure, type Reply, type Word, bytes, list, show } from "./resp";
import { TYPES, Value } from "./value";

/** Keys that are found before more are asked for. */
const ENOUGH = 100;
/** Keys that are shown at once. */
const MOST = 2000;
/** Keys that one call looks at: some milliseconds of a worker. */
const LOOK = 10_000;
/** Keys whose facts are asked for at once; each takes three calls of a thousand. */
const ASKED = 300;

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

/** What is told of a key beside its name. */
type Told = Map<string, string>;

async function tell(keys: Bytes[], db: number): Promise<Told> {
  const told: Told = new Map();
  for (let at = 0; at < keys.length; at += ASKED) {
    const part = keys.slice(at, at + ASKED);
    const asked = part.flatMap((key): Word[][] => [
      ["TYPE", key],
      ["PTTL", key],
      ["MEMORY", "USAGE", key],
    ]);
    const replies = await callsIn(db, asked);
    part.forEach((key, of) => {
      // What may not be asked is left out.
      const [type, ttl, bytes] = replies
        .slice(3 * of, 3 * of + 3)
        .map((reply) => (reply instanceof Failure || reply === null ? "" : show(reply)));
      const left = Number(ttl) >= 0 && ttl ? `${duration(Number(ttl) / 1000)} left` : "";
      const memory = bytes ? size(Number(bytes)) : "";
      told.set(show(key), [type, left, memory].filter((text) => text).join(" · "));
    });
  }
  return told;
}

interface Shown {
  separator: string;
  db: number;
  picked: string;
  onPick: (key: Bytes) => void;
}

/** What is below a folder, or at the top; of keys it is told what they are once they are seen. */
function Level({ node, ...shown }: { node: Node } & Shown) {
  const [told, setTold] = useState<Told>(new Map());
  const children = [...node.below.values()];
  const keys = children.flatMap((child) => child.key ?? []);
  const which = `${shown.db} ${keys.length} ${keys[0]} ${keys.at(-1)}`;
  useEffect(() => void tell(keys, shown.db).then(setTold), [which]);
  return (
    <>
      {children.map((child) =>
        child.key ? (
          <li class="leaf" key={`k${child.name}`}>
            <button
              class={show(child.key) === shown.picked ? "key here" : "key"}
              onClick={() => shown.onPick(child.key!)}
            >
              {child.name || '""'}
            </button>
            <small>{told.get(show(child.key)) ?? ""}</small>
          </li>
        ) : (
          <Folder key={`f${child.name}`} node={child} {...shown} />
        ),
      )}
    </>
  );
}

function Folder({ node, ...shown }: { node: Node } & Shown) {
  const [isOpen, setIsOpen] = useState(false);
  return (
    <li>
      <button class="folder" onClick={() => setIsOpen(!isOpen)}>
        {isOpen ? "▾" : "▸"} {node.name}
        {shown.separator} <small>{node.count}</small>
      </button>
      {isOpen && (
        <ul>
          <Level node={node} {...shown} />
        </ul>
      )}
    </li>
  );
}

/** A key that is to be made: what is added to it makes it. */
function New({ onPick }: { onPick: (key: Bytes, type: string) => void }) {
  const submit = (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.target as HTMLFormElement);
    onPick(new Bytes(bytes(String(form.get("name")))), String(form.get("type")));
  };
  return (
    <form class="line" onSubmit={submit}>
      <input name="name" placeholder="new key" aria-label="new key" required />
      <select name="type" aria-label="type of the new key">
        {TYPES.map((name) => (
          <option value={name}>{name}</option>
        ))}
      </select>
      <button>New</button>
    </form>
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
  const [picked, setPicked] = useState<[Bytes, string] | null>(null);
  const [looked, setLooked] = useState<[seen: number, all: number] | null>(null);
  /** The search under way: another one ends it. */
  const search = useRef(0);
  /** Goes through keys until some more are found, all are seen, or somebody stops it. */
  const look = async (from: string, known: Bytes[]) => {
    const me = ++search.current;
    const found = new Map(known.map((key) => [show(key), key]));
    const [all] = await callsIn(db, [["DBSIZE"]]);
    let at = from;
    let seen = 0;
    const isAll = (pattern || "*") === "*" && !type;
    do {
      const count = isAll ? ENOUGH * 2 : LOOK;
      const scan: Word[] = ["SCAN", at, "MATCH", bytes(pattern || "*"), "COUNT", count];
      const [reply] = await callsIn(db, [type ? [...scan, "TYPE", type] : scan]);
      if (search.current !== me) return;
      if (reply instanceof Failure) {
        setFailure(reply.text);
        break;
      }
      setFailure("");
      at = show(list(reply)[0]);
      setCursor(at);
      seen += count;
      for (const key of list(list(reply)[1])) found.set(show(key), key as Bytes);
      setLooked([seen, Number(all) || 0]);
      setKeys([...found.values()].sort((one, other) => (show(one) < show(other) ? -1 : 1)));
    } while (at !== "0" && found.size < known.length + ENOUGH);
    setLooked(null);
    setCursor(at);
  };
  const stop = () => {
    search.current++;
    setLooked(null);
  };
  useEffect(() => {
    void look("0", []);
    return stop;
  }, [db, type]);
  const isExact = !/[*?[]/.test(pattern) && pattern !== "";
  const root = grow(keys.slice(0, MOST), separator);
  return (
    <div class="split">
      <section class="card">
        <form
          class="line"
          onSubmit={(event) => {
            event.preventDefault();
            if (isExact) setPicked([new Bytes(bytes(pattern)), ""]);
            setKeys([]);
            void look("0", []);
          }}
        >
          <input
            value={pattern}
            aria-label="pattern"
            onInput={(event) => setPattern(event.currentTarget.value)}
            spellcheck={false}
            autocapitalize="off"
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
          <Choice label="type" of={["", ...TYPES]} value={type} onPick={setType} />
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
        {state.mayWrite && <New onPick={(key, type) => setPicked([key, type])} />}
        <ul class="tree">
          <Level
            node={root}
            separator={separator}
            db={db}
            picked={picked ? show(picked[0]) : ""}
            onPick={(key) => setPicked([key, ""])}
          />
        </ul>
        {looked ? (
          <p class="facts" role="status">
            <progress max={Math.max(looked[1], 1)} value={Math.min(looked[0], looked[1])} />{" "}
            {plain(Math.min(looked[0], looked[1]))} of {plain(looked[1])} looked at{" "}
            <button onClick={stop}>Stop</button>
          </p>
        ) : (
          cursor !== "0" &&
          (keys.length < MOST ? (
            <button onClick={() => void look(cursor, keys)}>More ({keys.length} so far)</button>
          ) : (
            <p>The first {MOST} are shown: a pattern finds others.</p>
          ))
        )}
        {!looked && !failure && keys.length === 0 && <p class="facts">No key is like this.</p>}
      </section>
      {picked && (
        <Value
          key={`${db} ${show(picked[0])} ${picked[1]}`}
          name={picked[0]}
          db={db}
          wanted={picked[1]}
          onOther={(other) => {
            setPicked(other && [other, ""]);
            void look("0", []);
          }}
        />
      )}
    </div>
  );
}
