// Rows and columns, as EXPORT and GRAPH answer them: as a table, page by page, or as a plot.

import { useEffect, useState } from "preact/hooks";
import { call } from "./api";
import { type Sheet, read } from "./arrow";
import { plain, size } from "./figures";
import { Table } from "./parts";
import { Plot } from "./plot";
import { Bytes, Failure, type Reply, Pairs, join, show } from "./resp";

const PAGE = 100;
/** Cells are shown up to so many characters. */
const CELL = 200;
/** What is pulled of an export: who wants all of it has other clients. */
const ROWS_MAX = 20_000;
const BYTES_MAX = 16 << 20;
/** Places of a plot. */
const PLACES = 5000;

const number = (cell: Reply | undefined) =>
  typeof cell === "number" || typeof cell === "bigint"
    ? Number(cell)
    : cell instanceof Bytes && cell.bytes.length > 0 && cell.bytes.length < 40
      ? Number(show(cell))
      : NaN;

const cut = (text: string) =>
  text.length > CELL ? `${text.slice(0, CELL)}… (${text.length})` : text;

/** Rows, page by page. */
export function Rows({ head, rows }: Sheet) {
  const [from, setFrom] = useState(0);
  const shown = rows.slice(from, from + PAGE);
  return (
    <>
      <Table
        head={head}
        rows={shown.map((row) =>
          row.map((cell) => (typeof cell === "number" ? cell : cut(show(cell)))),
        )}
      />
      {rows.length > PAGE && (
        <p>
          <button disabled={from === 0} onClick={() => setFrom(from - PAGE)}>
            Before
          </button>{" "}
          rows {from + 1} to {from + shown.length} of {rows.length}{" "}
          <button disabled={from + PAGE >= rows.length} onClick={() => setFrom(from + PAGE)}>
            After
          </button>
        </p>
      )}
    </>
  );
}

/** Columns against each other, or against the number of the row. */
function Drawn({ head, rows, isRanked }: Sheet & { isRanked: boolean }) {
  const numeric = head.flatMap((_, at) =>
    rows.some((row) => row[at] !== null) &&
    rows.every((row) => row[at] === null || !isNaN(number(row[at])))
      ? [at]
      : [],
  );
  const [x, setX] = useState(-1);
  const [y, setY] = useState(numeric.at(-1) ?? -1);
  if (y < 0) return <p>No column has numbers only.</p>;
  const pairs = rows
    .slice(0, PLACES)
    .map((row, at): [number, number] => [x < 0 ? at + 1 : number(row[x]), number(row[y])])
    .filter((pair) => pair.every((value) => !isNaN(value)))
    .sort((one, other) => one[0] - other[0]);
  const choose = (label: string, value: number, set: (at: number) => void, none?: string) => (
    <label>
      {label}{" "}
      <select value={value} onChange={(event) => set(Number(event.currentTarget.value))}>
        {none && <option value={-1}>{none}</option>}
        {numeric.map((at) => (
          <option value={at}>{head[at]}</option>
        ))}
      </select>
    </label>
  );
  const isBars = isRanked && x < 0 && pairs.length <= 200;
  // Names stand under bars; the first column is a node's name.
  const named = (place: number) => cut(show(rows[place - 1]?.[0])).slice(0, 14);
  return (
    <>
      <div class="line">
        {choose("across", x, setX, isRanked ? "rank" : "row")}
        {choose("up", y, setY)}
      </div>
      <Plot
        key={`${x} ${y}`}
        kind={isBars ? "bars" : "points"}
        names={[head[y]!]}
        form={plain}
        label={
          isBars ? (place) => (Number.isInteger(place) && place > 0 ? named(place) : "") : plain
        }
        height={260}
        data={[pairs.map(([x]) => x), pairs.map(([, y]) => y)]}
      />
      {rows.length > PLACES && <p>The first {PLACES} rows are shown.</p>}
    </>
  );
}

/** A table that can be a plot. */
export function Both({ sheet, isRanked }: { sheet: Sheet; isRanked: boolean }) {
  const [isPlot, setIsPlot] = useState(false);
  return (
    <>
      <p>
        <button onClick={() => setIsPlot(!isPlot)}>{isPlot ? "as a table" : "as a plot"}</button>
      </p>
      {isPlot ? <Drawn {...sheet} isRanked={isRanked} /> : <Rows {...sheet} />}
    </>
  );
}

/** What GRAPH.* answers: figures, and behind them a value for each node. */
export function Graph({ command, reply }: { command: string; reply: Pairs }) {
  const facts = reply.pairs.filter(([name]) => show(name) !== "result");
  const result = reply.pairs.find(([name]) => show(name) === "result")?.[1];
  const rows = Array.isArray(result) ? (result as Reply[][]) : [];
  const head = ["node", command.toLowerCase().replace("graph.", "").replace("_ro", "")];
  return (
    <>
      <table>
        <tbody>
          {facts.map(([name, value]) => (
            <tr>
              <th>{show(name)}</th>
              <td>{show(value)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > 0 && <Both sheet={{ head, rows }} isRanked />}
    </>
  );
}

/** Pulls the streams of an export, one after the other, up to a bound. */
async function pull(
  ids: Reply[],
  tell: (bytes: number) => void,
): Promise<[Sheet, string] | Failure> {
  const all: Sheet = { head: [], rows: [] };
  let bytes = 0;
  let why = "";
  for (const id of ids) {
    const parts: Uint8Array[] = [];
    for (;;) {
      if (all.rows.length >= ROWS_MAX || bytes >= BYTES_MAX) why = "there are more";
      const reply = why
        ? await call("EXPORT", "END", show(id))
        : await call("EXPORT", "NEXT", show(id));
      if (reply instanceof Failure) return reply;
      // None: not yet. Null: that was all.
      if (!(reply instanceof Bytes) || why) break;
      parts.push(reply.bytes);
      bytes += reply.bytes.length;
      tell(bytes);
    }
    const { head, rows } = read(join(parts));
    if (head.length) all.head = head;
    all.rows = all.rows.concat(rows.slice(0, ROWS_MAX - all.rows.length));
    if (rows.length && all.rows.length >= ROWS_MAX) why = "there are more";
  }
  return [all, why];
}

export function Export({ ids }: { ids: Reply[] }) {
  const [bytes, setBytes] = useState(0);
  const [found, setFound] = useState<[Sheet, string] | Failure | null>(null);
  useEffect(() => void pull(ids, setBytes).then(setFound), []);
  if (!found) return <p>{size(bytes)} so far</p>;
  if (found instanceof Failure) return <p class="failure">{found.text}</p>;
  const [sheet, why] = found;
  return (
    <>
      <p class="facts">
        {sheet.rows.length} rows, {size(bytes)}
        {why && `; ${why}: the rest was given up`}
      </p>
      {sheet.rows.length > 0 && <Both sheet={sheet} isRanked={false} />}
    </>
  );
}
