// What a key is and holds, with what may be done to it as a whole. Its members are `members.tsx`'s.

import { useEffect, useState } from "preact/hooks";
import { callsIn, state } from "./api";
import { duration, size } from "./figures";
import { Members } from "./members";
import { Bytes, Failure, type Reply, type Word, bytes, show } from "./resp";

/** Bytes of a string that are shown at once. */
const CHUNK = 16 * 1024;

const LENGTHS: Record<string, string> = {
  string: "STRLEN",
  list: "LLEN",
  set: "SCARD",
  zset: "ZCARD",
  hash: "HLEN",
  stream: "XLEN",
};
export const TYPES = Object.keys(LENGTHS);

interface Facts {
  type: string;
  ttl: number;
  bytes: number;
  encoding: string;
  length: number;
}

export type Ask = (...all: Word[][]) => Promise<Reply[]>;
/** Makes calls, one after the other up to one that fails; whether none did. */
export type Change = (...all: Word[][]) => Promise<boolean>;

/** `wanted`: of a key that there is not yet, what it is to be. */
export function Value({
  name,
  db,
  wanted,
  onOther,
}: {
  name: Bytes;
  db: number;
  wanted: string;
  onOther: (key: Bytes | null) => void;
}) {
  const [facts, setFacts] = useState<Facts | null>(null);
  const [failure, setFailure] = useState("");
  const [version, setVersion] = useState(0);
  const ask: Ask = (...all) => callsIn(db, all);
  useEffect(() => {
    void (async () => {
      const [type] = await ask(["TYPE", name]);
      if (type instanceof Failure) return setFailure(type.text);
      const kind = show(type);
      if (kind === "none" && !wanted) {
        setFacts(null);
        return setFailure("There is no such key.");
      }
      if (kind === "none")
        return setFacts({ type: wanted, ttl: -1, bytes: 0, encoding: "new", length: 0 });
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
        encoding: encoding instanceof Failure ? "" : show(encoding),
        length: Number(show(length)) || 0,
      });
    })();
  }, [version]);
  /** Changes something, and shows what there is then. */
  const change: Change = async (...all) => {
    let failed = "";
    for (const words of all) {
      const [reply] = await ask(words);
      if (reply instanceof Failure) {
        failed = reply.text;
        break;
      }
    }
    setFailure(failed);
    setVersion((version) => version + 1);
    return !failed;
  };
  const remove = async () => {
    if (confirm(`Delete ${show(name)}?`) && (await change(["DEL", name]))) onOther(null);
  };
  const rename = async () => {
    const shown = prompt("New name", show(name));
    if (!shown || shown === show(name)) return;
    const other = new Bytes(bytes(shown));
    const [reply] = await ask(["RENAMENX", name, other]);
    if (reply instanceof Failure) setFailure(reply.text);
    else if (Number(show(reply)) !== 1) setFailure("There is a key of that name.");
    else onOther(other);
  };
  const expire = () => {
    const seconds = prompt("Seconds to live; empty: for ever", "");
    if (seconds !== null) void change(seconds ? ["EXPIRE", name, seconds] : ["PERSIST", name]);
  };
  return (
    <section class="card value">
      <h2>{show(name) || '""'}</h2>
      {failure && (
        <p class="failure" role="alert">
          {failure}
        </p>
      )}
      {facts && (
        <>
          <p class="facts">{told(facts)}</p>
          {state.mayWrite && facts.encoding !== "new" && (
            <p>
              <button onClick={expire}>Expiry</button>{" "}
              <button onClick={() => void rename()}>Rename</button>{" "}
              <button class="danger" onClick={() => void remove()}>
                Delete
              </button>
            </p>
          )}
          {facts.type === "string" ? (
            <Text version={version} name={name} length={facts.length} ask={ask} change={change} />
          ) : (
            <Members
              key={facts.type}
              version={version}
              name={name}
              type={facts.type}
              length={facts.length}
              average={facts.bytes / facts.length || 1}
              ask={ask}
              change={change}
            />
          )}
        </>
      )}
    </section>
  );
}

function told({ type, encoding, length, bytes, ttl }: Facts): string {
  if (encoding === "new") return `${type}, not there yet: what is stored makes it`;
  const parts = [
    type,
    encoding,
    `${length} ${type === "string" ? "bytes" : type === "stream" ? "entries" : "members"}`,
    bytes && `${size(bytes)} in memory`,
    ttl < 0 ? "no expiry" : `${duration(ttl / 1000)} to live`,
  ];
  return parts.filter((part) => part).join(", ");
}

/** A string: as a whole if it is short, else a piece of it, which is replaced where it stands. */
function Text({
  name,
  length,
  version,
  ask,
  change,
}: {
  name: Bytes;
  length: number;
  version: number;
  ask: Ask;
  change: Change;
}) {
  const [at, setAt] = useState(0);
  const [text, setText] = useState("");
  const [why, setWhy] = useState("");
  const isWhole = length <= CHUNK;
  const end = Math.min(length, at + CHUNK);
  useEffect(() => {
    const asked = length ? ask(["GETRANGE", name, at, at + CHUNK - 1]) : Promise.resolve([""]);
    void asked.then(([reply]) =>
      reply instanceof Failure ? setWhy(reply.text) : setText(length ? show(reply as Reply) : ""),
    );
  }, [at, version]);
  const store = () => {
    const now = bytes(text);
    setWhy("");
    if (isWhole) return void change(["SET", name, now, "KEEPTTL"]);
    // In the middle what follows would be written over, or something old be left.
    const fits = now.length === end - at || (end === length && now.length > end - at);
    if (fits) return void change(["SETRANGE", name, at, now]);
    setWhy(`A piece keeps its length: it had ${end - at} bytes, and now has ${now.length}.`);
  };
  const go = (to: number) => setAt(Math.max(0, Math.min(to, length - 1)));
  return (
    <>
      {why && <p class="failure">{why}</p>}
      <textarea
        value={text}
        rows={12}
        aria-label="value"
        readOnly={!state.mayWrite}
        spellcheck={false}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      {!isWhole && (
        <p class="pages">
          <button disabled={at === 0} onClick={() => go(at - CHUNK)}>
            Before
          </button>
          <span>
            bytes {at} to {end - 1} of {length}
          </span>
          <button disabled={end >= length} onClick={() => go(at + CHUNK)}>
            After
          </button>
          <label>
            from{" "}
            <input
              class="short"
              type="number"
              min={0}
              value={at}
              onChange={(event) => go(Number(event.currentTarget.value))}
            />
          </label>
        </p>
      )}
      {state.mayWrite && (
        <p>
          <button onClick={store}>Store</button>
        </p>
      )}
    </>
  );
}
