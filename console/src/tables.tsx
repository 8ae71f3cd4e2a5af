// Views that are tables: clients, logs, options, functions.

import { useEffect, useState } from "preact/hooks";
import { type Option, call, options, state } from "./api";
import { Asked, Table } from "./parts";
import { Failure, type Reply, list, pairs, show } from "./resp";

const CLIENT = ["id", "addr", "name", "user", "db", "age", "idle", "cmd", "tot-mem", "lib-name"];

export function Clients() {
  const [failure, setFailure] = useState("");
  const kill = async (client: Map<string, string>, again: () => void) => {
    const id = client.get("id")!;
    if (!confirm(`Kill client ${id} (${client.get("addr")})?`)) return;
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
              head={state.mayWrite ? ["", ...CLIENT] : CLIENT}
              rows={all.slice(0, 500).map((client) => [
                ...(state.mayWrite
                  ? [
                      <button class="danger" onClick={() => void kill(client, again)}>
                        Kill
                      </button>,
                    ]
                  : []),
                ...CLIENT.map((name) => client.get(name) ?? ""),
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
          `${option.name} ${option.aliases} ${option.doc}`
            .toLowerCase()
            .includes(wanted.toLowerCase());
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
                        {option.aliases && `; also called ${option.aliases}`}
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
