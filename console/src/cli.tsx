// A line for commands, with completion and help from COMMAND DOCS; replies as a tree, or as a table.

import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "./api";
import { Failure, Pairs, type Reply, bytes, list, pairs, show } from "./resp";

interface Help {
  summary: string;
  complexity: string;
  syntax: string;
}

function syntax(argument: Map<string, Reply>): string {
  const of = (name: string) => (argument.has(name) ? show(argument.get(name)) : "");
  const parts = list(argument.get("arguments")).map((part) => syntax(new Map(pairs(part))));
  const kind = of("type");
  let shown =
    kind === "oneof"
      ? parts.join("|")
      : kind === "block"
        ? parts.join(" ")
        : kind === "pure-token"
          ? of("token")
          : of("name");
  if (of("token") && kind !== "pure-token") shown = `${of("token")} ${shown}`;
  const flags = list(argument.get("flags")).map(show);
  if (flags.includes("multiple")) shown = `${shown} [${shown} ...]`;
  if (flags.includes("optional")) return `[${shown}]`;
  return kind === "oneof" ? `<${shown}>` : shown;
}

function learn(docs: Reply, help: Map<string, Help>): void {
  for (const [name, reply] of pairs(docs)) {
    const facts = new Map(pairs(reply));
    const words = name.replace("|", " ").toUpperCase();
    const rest = list(facts.get("arguments")).map((argument) => syntax(new Map(pairs(argument))));
    if (facts.has("subcommands")) learn(facts.get("subcommands")!, help);
    help.set(words, {
      summary: show(facts.get("summary")),
      complexity: facts.has("complexity") ? show(facts.get("complexity")) : "",
      syntax: [words, ...rest].join(" "),
    });
  }
}

/** Words as redis-cli reads them: quotes keep spaces. Null: a quote is open. */
export function words(line: string): Uint8Array[] | null {
  const found: Uint8Array[] = [];
  const pattern = /\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"']+))(?=\s|$)/gy;
  let at = 0;
  while (line.slice(at).trim()) {
    pattern.lastIndex = at;
    const part = pattern.exec(line);
    if (!part) return null;
    const quoted = part[1] ?? part[2];
    const unescaped = quoted
      ?.replace(/\\n/g, "\n")
      .replace(/\\r/g, "\r")
      .replace(/\\t/g, "\t")
      .replace(/\\(["'])/g, "$1");
    found.push(bytes(unescaped ?? part[3]!));
    at = pattern.lastIndex;
  }
  return found;
}

/** Names and numbers, as sorted sets and graphs are answered: one after the other, or in pairs. */
function rows(reply: Reply): [string, Reply][] | null {
  if (reply instanceof Pairs) return reply.pairs.map(([key, value]) => [show(key), value]);
  if (!Array.isArray(reply) || reply.length === 0) return null;
  if (reply.every((pair) => Array.isArray(pair) && pair.length === 2)) return rows(reply.flat());
  if (reply.length % 2) return null;
  const isScored = reply.every(
    (value, at) => at % 2 === 0 || (!Array.isArray(value) && !isNaN(Number(show(value)))),
  );
  return isScored ? pairs(reply) : null;
}

export function Tree({ reply }: { reply: Reply }) {
  if (reply instanceof Failure) return <span class="failure">{reply.text}</span>;
  if (reply instanceof Pairs)
    return (
      <table class="reply">
        <tbody>
          {reply.pairs.map(([key, value]) => (
            <tr>
              <th>{show(key)}</th>
              <td>
                <Tree reply={value} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    );
  if (Array.isArray(reply))
    return reply.length ? (
      <ol>
        {reply.slice(0, 1000).map((value) => (
          <li>
            <Tree reply={value} />
          </li>
        ))}
      </ol>
    ) : (
      <i>(empty)</i>
    );
  return <span class="value">{show(reply)}</span>;
}

function Answer({ reply }: { reply: Reply }) {
  const [asTable, setAsTable] = useState(false);
  const found = rows(reply);
  const largest = Math.max(
    ...(found ?? []).map(([, value]) => Math.abs(Number(show(value))) || 0),
    1e-300,
  );
  return (
    <>
      {found && (
        <button onClick={() => setAsTable(!asTable)}>{asTable ? "as it is" : "as a table"}</button>
      )}
      {asTable && found ? (
        <table class="bars">
          <tbody>
            {found.slice(0, 500).map(([name, value]) => (
              <tr>
                <th>{name}</th>
                <td>{show(value)}</td>
                <td>
                  <meter min={0} max={largest} value={Math.abs(Number(show(value))) || 0} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : (
        <Tree reply={reply} />
      )}
    </>
  );
}

export function Line() {
  const [help, setHelp] = useState(new Map<string, Help>());
  const [line, setLine] = useState("");
  const [log, setLog] = useState<[string, Reply][]>([]);
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
  const run = async (event: Event) => {
    event.preventDefault();
    const call_ = words(line);
    if (!call_) return setLog([[line, new Failure("a quote is open")], ...log]);
    if (!call_.length) return;
    const reply = await call(...call_);
    setLog((log) => [[line, reply] as [string, Reply], ...log].slice(0, 50));
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
      {log.map(([line, reply]) => (
        <article>
          <code>&gt; {line}</code>
          <div>
            <Answer reply={reply} />
          </div>
        </article>
      ))}
    </section>
  );
}
