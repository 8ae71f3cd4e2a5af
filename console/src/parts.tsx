// What the views are made of: a reply that is asked for, a table, a choice, a bar.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call, repeat, state } from "./api";
import { Failure, type Reply, type Word } from "./resp";

const isSampleOff = (reply: Failure) => reply.text.includes("hotkeys-sample is 0");

/** A reply, and a way to ask again. What can't be had is said instead. */
export function Asked({
  words,
  every,
  isBare,
  children,
}: {
  words: Word[];
  every?: number;
  isBare?: boolean;
  children: (reply: Reply, again: () => void) => ComponentChildren;
}) {
  const [reply, setReply] = useState<Reply | undefined>(undefined);
  const ask = () => call(...words).then(setReply);
  useEffect(() => {
    if (every) return repeat(every, ask);
    void ask();
  }, []);
  if (reply === undefined) return null;
  const shown =
    reply instanceof Failure ? (
      isSampleOff(reply) ? (
        <SampleOff again={() => void ask()} />
      ) : (
        <p class="failure">This is not shown: {reply.text}</p>
      )
    ) : (
      children(reply, () => void ask())
    );
  return isBare ? <>{shown}</> : <section class="card">{shown}</section>;
}

/** Rows of cells; numbers stand right. */
export function Table({ head, rows }: { head: string[]; rows: ComponentChildren[][] }) {
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
                <td class={typeof cell === "number" ? "number" : ""}>{cell}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** One of some words; an empty one is any. */
export function Choice(props: {
  label: string;
  of: readonly string[];
  value: string;
  onPick: (word: string) => void;
}) {
  return (
    <label>
      {props.label}{" "}
      <select value={props.value} onChange={(event) => props.onPick(event.currentTarget.value)}>
        {props.of.map((word) => (
          <option value={word}>{word || "any"}</option>
        ))}
      </select>
    </label>
  );
}

/** How much of the most. */
export const Bar = ({ part }: { part: number }) => <meter min={0} max={1} value={part} />;

/** What counts calls is off at first; who may, turns it on here. */
function SampleOff({ again }: { again: () => void }) {
  const [failure, setFailure] = useState("");
  const turnOn = async () => {
    const reply = await call("CONFIG", "SET", "hotkeys-sample", 100);
    if (reply instanceof Failure) setFailure(reply.text);
    else again();
  };
  return (
    <>
      <p>
        Calls are not counted: the option <code>hotkeys-sample</code> is 0.{" "}
        {state.mayWrite ? (
          <button onClick={() => void turnOn()}>Count one of 100</button>
        ) : (
          "With writing on it can be changed here."
        )}
      </p>
      {failure && <p class="failure">{failure}</p>}
    </>
  );
}
