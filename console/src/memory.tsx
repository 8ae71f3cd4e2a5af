// Which keys are used most, and what fills the memory.

import { useState } from "preact/hooks";
import { call } from "./api";
import { plain, size } from "./figures";
import { Asked, Bar, Choice, Table } from "./parts";
import { Failure, type Reply, list, pairs, show } from "./resp";

const HOT = 100;
const ROWS = 100;
const MEASURES = ["calls", "reads", "writes", "net", "cpu"];

const facts = (reply: Reply | undefined) => new Map(pairs(reply));
const figure = (of: Map<string, Reply>, name: string) => Number(show(of.get(name)));

export function HotKeys() {
  const [by, setBy] = useState("calls");
  const weight = (key: Map<string, Reply>) =>
    by === "calls"
      ? figure(key, "reads") + figure(key, "writes")
      : figure(key, by === "net" ? "net-bytes" : by === "cpu" ? "cpu-us" : by);
  return (
    <section class="card">
      <h2>Keys that are used most</h2>
      <div class="line">
        <Choice label="by" of={MEASURES} value={by} onPick={setBy} />
      </div>
      <Asked key={by} words={["HOTKEYS", "LIST", "BY", by, "COUNT", HOT]} every={2000} isBare>
        {(reply) => {
          const keys = list(reply).map(facts);
          const most = Math.max(1, ...keys.map(weight));
          if (!keys.length) return <p>No key was counted yet.</p>;
          return (
            <Table
              head={["key", "", "reads", "writes", "bytes", "µs", "db"]}
              rows={keys.map((key) => [
                show(key.get("key")),
                <Bar part={weight(key) / most} />,
                plain(figure(key, "reads")),
                plain(figure(key, "writes")),
                size(figure(key, "net-bytes")),
                plain(figure(key, "cpu-us")),
                show(key.get("db")),
              ])}
            />
          );
        }}
      </Asked>
    </section>
  );
}

const WAYS = ["prefix", "type", "ttl", "encoding", "slot"];

/** One pass over all keys, so it is made when somebody asks. */
export function Memory() {
  const [by, setBy] = useState("prefix");
  const [separator, setSeparator] = useState(":");
  const [reply, setReply] = useState<Reply | undefined>(undefined);
  const [isBusy, setIsBusy] = useState(false);
  const run = async (event: Event) => {
    event.preventDefault();
    setIsBusy(true);
    const prefix = by === "prefix" && separator ? ["SEPARATOR", separator] : [];
    setReply(await call("MEMORY", "REPORT", "BY", by, ...prefix, "TOP", ROWS));
    setIsBusy(false);
  };
  return (
    <>
      <section class="card">
        <h2>What fills the memory</h2>
        <form class="line" onSubmit={(event) => void run(event)}>
          <Choice label="by" of={WAYS} value={by} onPick={setBy} />
          {by === "prefix" && (
            <label>
              separator{" "}
              <input
                class="short"
                value={separator}
                onInput={(event) => setSeparator(event.currentTarget.value)}
              />
            </label>
          )}
          <button disabled={isBusy}>{isBusy ? "Looking at all keys" : "Report"}</button>
        </form>
        {reply instanceof Failure && <p class="failure">This is not shown: {reply.text}</p>}
        {reply !== undefined && !(reply instanceof Failure) && <Report of={facts(reply)} />}
      </section>
    </>
  );
}

function Report({ of }: { of: Map<string, Reply> }) {
  const rows = list(of.get("rows")).map(facts);
  const largest = list(of.get("largest")).map(facts);
  const others = facts(of.get("others"));
  const most = Math.max(1, ...rows.map((row) => figure(row, "bytes")));
  const share = (row: Map<string, Reply>) =>
    `${((100 * figure(row, "bytes_without_ttl")) / Math.max(1, figure(row, "bytes"))).toFixed(0)} %`;
  return (
    <>
      <p class="facts">
        {plain(figure(of, "keys"))} keys, {size(figure(of, "bytes"))}, of these{" "}
        {size(figure(of, "bytes_without_ttl"))} without expiry; compression would save about{" "}
        {size(figure(of, "compression_saves"))}. It took {figure(of, "seconds").toFixed(2)} s.
      </p>
      <Table
        head={["name", "", "bytes", "keys", "without expiry", "compression saves", "largest key"]}
        rows={rows.map((row) => {
          const [key, bytes] = list(list(row.get("largest"))[0]);
          return [
            show(row.get("name")) || '""',
            <Bar part={figure(row, "bytes") / most} />,
            size(figure(row, "bytes")),
            plain(figure(row, "keys")),
            share(row),
            size(figure(row, "compression_saves")),
            key === undefined ? "" : `${show(key)} (${size(Number(show(bytes)))})`,
          ];
        })}
      />
      {figure(others, "rows") > 0 && (
        <p>
          {plain(figure(others, "rows"))} more with {plain(figure(others, "keys"))} keys,{" "}
          {size(figure(others, "bytes"))}.
        </p>
      )}
      <h3>The largest keys</h3>
      <Table
        head={["bytes", "key", "type", "encoding", "length", "expiry", "db"]}
        rows={largest
          .slice(0, 20)
          .map((key) => [
            size(figure(key, "bytes")),
            show(key.get("key")),
            show(key.get("type")),
            show(key.get("encoding")),
            plain(figure(key, "length")),
            figure(key, "ttl_ms") < 0 ? "none" : `${(figure(key, "ttl_ms") / 1000).toFixed(0)} s`,
            show(key.get("db")),
          ])}
      />
    </>
  );
}
