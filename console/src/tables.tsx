// Views that are tables: clients, logs, options, functions, the slots of a cluster.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type Option, call, options, state } from "./api";
import { Tree } from "./cli";
import { Failure, Pairs, type Reply, type Word, list, pairs, show } from "./resp";

/** A reply, and a way to ask again. What can't be had is said instead. */
function Asked({
  words,
  every,
  children,
}: {
  words: Word[];
  every?: number;
  children: (reply: Reply, again: () => void) => ComponentChildren;
}) {
  const [reply, setReply] = useState<Reply | undefined>(undefined);
  const ask = () => void call(...words).then(setReply);
  useEffect(() => {
    ask();
    const timer = every ? setInterval(ask, every) : 0;
    return () => clearInterval(timer);
  }, []);
  if (reply === undefined) return null;
  return (
    <section class="card">
      {reply instanceof Failure ? (
        <p class="failure">This is not shown: {reply.text}</p>
      ) : (
        children(reply, ask)
      )}
    </section>
  );
}

function Table({ head, rows }: { head: string[]; rows: ComponentChildren[][] }) {
  return (
    <div class="wide">
      <table>
        <thead>
          <tr>
            {head.map((name) => (
              <th>{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr>
              {row.map((cell) => (
                <td>{cell}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const CLIENT = ["id", "addr", "name", "user", "db", "age", "idle", "cmd", "tot-mem", "lib-name"];

export function Clients() {
  const [failure, setFailure] = useState("");
  const kill = async (id: string, again: () => void) => {
    const reply = await call("CLIENT", "KILL", "ID", id);
    setFailure(reply instanceof Failure ? reply.text : "");
    again();
  };
  return (
    <Asked words={["CLIENT", "LIST"]} every={2000}>
      {(reply, again) => {
        const all = show(reply)
          .trim()
          .split("\n")
          .map(
            (line) =>
              new Map(
                line
                  .split(" ")
                  .map(
                    (part) =>
                      [part.slice(0, part.indexOf("=")), part.slice(part.indexOf("=") + 1)] as [
                        string,
                        string,
                      ],
                  ),
              ),
          );
        return (
          <>
            {failure && <p class="failure">{failure}</p>}
            <p>{all.length} clients</p>
            <Table
              head={[...CLIENT, ""]}
              rows={all.slice(0, 500).map((client) => [
                ...CLIENT.map((name) => client.get(name) ?? ""),
                state.mayWrite && (
                  <button class="danger" onClick={() => void kill(client.get("id")!, again)}>
                    Kill
                  </button>
                ),
              ])}
            />
          </>
        );
      }}
    </Asked>
  );
}

const time = (seconds: Reply | undefined) =>
  new Date(Number(show(seconds)) * 1000).toLocaleString();

export function Slow() {
  return (
    <Asked words={["SLOWLOG", "GET", 200]} every={5000}>
      {(reply) => (
        <Table
          head={["when", "µs", "call", "client", "name"]}
          rows={list(reply).map((entry) => {
            const [, at, took, words, address, name] = list(entry);
            return [
              time(at),
              show(took),
              <code>{list(words).map(show).join(" ")}</code>,
              show(address),
              show(name),
            ];
          })}
        />
      )}
    </Asked>
  );
}

export function Acl() {
  const head = ["reason", "context", "object", "username", "count", "age-seconds", "client-info"];
  return (
    <Asked words={["ACL", "LOG", 128]} every={5000}>
      {(reply) => (
        <Table
          head={head}
          rows={list(reply).map((entry) => {
            const facts = new Map(pairs(entry));
            return head.map((name) => show(facts.get(name)));
          })}
        />
      )}
    </Asked>
  );
}

export function Config() {
  const [known, setKnown] = useState<Option[]>([]);
  const [wanted, setWanted] = useState("");
  const [failure, setFailure] = useState("");
  useEffect(() => void options().then(setKnown), []);
  const change = async (name: string, before: string, again: () => void) => {
    const value = prompt(name, before);
    if (value === null) return;
    const reply = await call("CONFIG", "SET", name, value);
    setFailure(reply instanceof Failure ? reply.text : "");
    again();
  };
  return (
    <Asked words={["CONFIG", "GET", "*"]}>
      {(reply, again) => {
        const values = new Map(pairs(reply));
        const fits = (option: Option) =>
          values.has(option.name) &&
          `${option.name} ${option.doc}`.toLowerCase().includes(wanted.toLowerCase());
        return (
          <>
            <div class="line">
              <input
                placeholder="look for"
                aria-label="look for"
                onInput={(event) => setWanted(event.currentTarget.value)}
              />
            </div>
            {failure && (
              <p class="failure" role="alert">
                {failure}
              </p>
            )}
            <dl class="options">
              {known.filter(fits).map((option) => {
                const value = show(values.get(option.name));
                return (
                  <>
                    <dt class={value === option.standard ? "" : "changed"}>
                      {option.name} <code>{value || '""'}</code>
                      {state.mayWrite && option.change === "" && (
                        <button onClick={() => void change(option.name, value, again)}>
                          Change
                        </button>
                      )}
                    </dt>
                    <dd>
                      {option.doc}{" "}
                      <small>
                        {option.group}; default {option.standard || '""'}
                        {option.change === "start"
                          ? "; at the start only"
                          : option.change
                            ? "; protected"
                            : ""}
                      </small>
                    </dd>
                  </>
                );
              })}
            </dl>
          </>
        );
      }}
    </Asked>
  );
}

export function Functions() {
  return (
    <Asked words={["FUNCTION", "LIST", "WITHCODE"]}>
      {(reply) =>
        list(reply).length === 0 ? (
          <p>There are no libraries.</p>
        ) : (
          list(reply).map((library) => {
            const facts = new Map(pairs(library));
            return (
              <details>
                <summary>
                  {show(facts.get("library_name"))}{" "}
                  <small>
                    {list(facts.get("functions"))
                      .map((one) => show(new Map(pairs(one)).get("name")))
                      .join(", ")}
                  </small>
                </summary>
                <pre>{show(facts.get("library_code"))}</pre>
              </details>
            );
          })
        )
      }
    </Asked>
  );
}

const SLOTS = 16384;

/** Slots by who has them: 128 rows of 128. */
function SlotMap({ shards }: { shards: { slots: [number, number][]; name: string }[] }) {
  const [canvas, setCanvas] = useState<HTMLCanvasElement | null>(null);
  useEffect(() => {
    const context = canvas?.getContext("2d");
    if (!context) return;
    context.clearRect(0, 0, 128, 128);
    shards.forEach((shard, at) => {
      context.fillStyle = `hsl(${(at * 137) % 360} 55% 55%)`;
      for (const [first, last] of shard.slots)
        for (let slot = first; slot <= last; slot++) context.fillRect(slot % 128, slot >> 7, 1, 1);
    });
  });
  return (
    <canvas ref={setCanvas} width={128} height={128} class="slots" aria-label="slots by shard" />
  );
}

export function Cluster() {
  return (
    <Asked words={["CLUSTER", "SHARDS"]} every={3000}>
      {(reply) => {
        const shards = list(reply).map((shard) => {
          const facts = new Map(pairs(shard));
          const ends = list(facts.get("slots")).map((slot) => Number(show(slot)));
          const slots = ends.flatMap((end, at) =>
            at % 2 ? [] : [[end, ends[at + 1]!] as [number, number]],
          );
          const nodes = list(facts.get("nodes"));
          const first = new Map(pairs(nodes[0]));
          return {
            slots,
            nodes,
            name: `${show(first.get("endpoint"))}:${show(first.get("port"))}`,
          };
        });
        const count = (slots: [number, number][]) =>
          slots.reduce((sum, [first, last]) => sum + last - first + 1, 0);
        return (
          <>
            <SlotMap shards={shards} />
            <p>
              {shards.reduce((sum, shard) => sum + count(shard.slots), 0)} of {SLOTS} slots are
              somebody's.
            </p>
            {shards.map((shard, at) => (
              <article>
                <h3>
                  <span
                    class="swatch"
                    ref={(box) =>
                      void (box && (box.style.background = `hsl(${(at * 137) % 360} 55% 55%)`))
                    }
                  />{" "}
                  {shard.name}: {count(shard.slots)} slots
                </h3>
                {shard.nodes.map((node) => (
                  <Tree
                    reply={
                      node instanceof Pairs
                        ? new Pairs(
                            node.pairs.filter(([name]) =>
                              ["endpoint", "port", "role", "replication-offset", "health"].includes(
                                show(name),
                              ),
                            ),
                          )
                        : node
                    }
                  />
                ))}
              </article>
            ))}
          </>
        );
      }}
    </Asked>
  );
}
