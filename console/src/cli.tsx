// A line for commands, with completion and help from COMMAND DOCS; replies as a tree, or as a table.

import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "./api";
import { Bytes, Failure, Pairs, type Reply, bytes, show, text } from "./resp";
import { Both, Export, Graph } from "./sheet";
import { type Help, learn, rows, words } from "./words";

/** Elements of a reply, and characters of a string, that are shown: a page is no place for more. */
const ELEMENTS = 1000;
const CHARACTERS = 100_000;

const More = ({ of }: { of: number }) =>
  of > ELEMENTS ? <p class="facts">and {of - ELEMENTS} more</p> : null;

export function Tree({ reply }: { reply: Reply }) {
  if (reply instanceof Failure) return <span class="failure">{reply.text}</span>;
  if (reply instanceof Pairs)
    return (
      <>
        <table class="reply">
          <tbody>
            {reply.pairs.slice(0, ELEMENTS).map(([key, value]) => (
              <tr>
                <th>{show(key)}</th>
                <td>
                  <Tree reply={value} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        <More of={reply.pairs.length} />
      </>
    );
  if (Array.isArray(reply))
    return reply.length ? (
      <>
        <ol>
          {reply.slice(0, ELEMENTS).map((value) => (
            <li>
              <Tree reply={value} />
            </li>
          ))}
        </ol>
        <More of={reply.length} />
      </>
    ) : (
      <i>(empty)</i>
    );
  const shown = show(reply);
  const rest = shown.length - CHARACTERS;
  return (
    <span class="value">
      {shown.slice(0, CHARACTERS)}
      {rest > 0 && <i>… and {rest} characters more</i>}
    </span>
  );
}

function Answer({ line, reply }: { line: string; reply: Reply }) {
  const [asTable, setAsTable] = useState(false);
  const [first = "", second = ""] = (words(line) ?? []).map((word) => text(word).toUpperCase());
  if (first.startsWith("GRAPH.") && reply instanceof Pairs)
    return <Graph command={first} reply={reply} />;
  if (first === "EXPORT" && second === "BEGIN" && Array.isArray(reply))
    return <Export ids={reply} />;
  const found = rows(reply);
  return (
    <>
      {found && (
        <button onClick={() => setAsTable(!asTable)}>{asTable ? "as it is" : "as a table"}</button>
      )}
      {asTable && found ? (
        <Both
          sheet={{
            head: ["name", "value"],
            rows: found.map(([name, value]) => [named(name), value]),
          }}
          isRanked
        />
      ) : (
        <Tree reply={reply} />
      )}
    </>
  );
}

/** A name that is shown already. */
const named = (shown: string) => new Bytes(bytes(shown));

export function Line() {
  const [help, setHelp] = useState(new Map<string, Help>());
  const [line, setLine] = useState("");
  const [log, setLog] = useState<[string, Reply, number][]>([]);
  const [at, setAt] = useState(-1);
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => {
    void call("COMMAND", "DOCS").then((docs) => {
      const all = new Map<string, Help>();
      learn(docs, all);
      setHelp(all);
    });
  }, []);
  const typed = line.trimStart().toUpperCase();
  const [first, second] = typed.split(/\s+/);
  const known = help.get(`${first} ${second}`) ?? help.get(first ?? "");
  const offers =
    typed && !typed.endsWith(" ")
      ? [...help.keys()]
          .filter((name) => name.startsWith(typed) && name !== typed)
          .sort()
          .slice(0, 8)
      : [];
  const note = (reply: Reply) =>
    setLog((log) =>
      [[line, reply, (log[0]?.[2] ?? 0) + 1] as [string, Reply, number], ...log].slice(0, 50),
    );
  const run = async (event: Event) => {
    event.preventDefault();
    const call_ = words(line);
    if (!call_) return note(new Failure("a quote is open"));
    if (!call_.length) return;
    const reply = await call(...call_);
    note(reply);
    setLine("");
    setAt(-1);
  };
  const key = (event: KeyboardEvent) => {
    if (event.key === "Tab" && offers[0]) {
      event.preventDefault();
      setLine(offers[0] + " ");
    } else if (event.key === "ArrowUp" && log[at + 1]) {
      setLine(log[at + 1]![0]);
      setAt(at + 1);
    }
  };
  return (
    <section class="card">
      <form class="line" onSubmit={run}>
        <input
          ref={box}
          value={line}
          onInput={(event) => setLine(event.currentTarget.value)}
          onKeyDown={key}
          placeholder="GET key"
          aria-label="command"
          spellcheck={false}
          autocapitalize="off"
          autocomplete="off"
          autofocus
        />
        <button>Call</button>
      </form>
      <div class="offers">
        {offers.map((name) => (
          <button
            onClick={() => {
              setLine(name + " ");
              box.current?.focus();
            }}
          >
            {name}
          </button>
        ))}
      </div>
      {known && (
        <p class="help">
          <code>{known.syntax}</code>
          <br />
          {known.summary} <i>{known.complexity}</i>
        </p>
      )}
      {log.map(([line, reply, number]) => (
        <article key={number}>
          <code>&gt; {line}</code>
          <div>
            <Answer line={line} reply={reply} />
          </div>
        </article>
      ))}
    </section>
  );
}
