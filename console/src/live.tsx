// What goes on, every second: figures of INFO as curves and as numbers.

import { useEffect, useRef, useState } from "preact/hooks";
import { calls, repeat } from "./api";
import { type Info, duration, number, parseInfo, parts, plain, size, slowest } from "./figures";
import { Table } from "./parts";
import { Plot } from "./plot";
import { Failure, show } from "./resp";

const SECONDS = 300;

/** What there is no figure for is a gap. */
type Series = (number | null)[];

interface Curve {
  title: string;
  form: (value: number) => string;
  /** By name: from the figures, and those of a second ago. */
  lines: Record<string, (now: Info, before: Info, seconds: number) => number>;
  /** What the last figure is of. */
  of?: (now: Info, before: Info) => string;
}

const rate =
  (...names: string[]) =>
  (now: Info, before: Info, seconds: number) =>
    Math.max(
      0,
      names.reduce((sum, name) => sum + number(now, name) - number(before, name), 0) / seconds,
    );
const value = (name: string) => (now: Info) => number(now, name);

const curves: Curve[] = [
  { title: "Calls a second", form: plain, lines: { calls: rate("total_commands_processed") } },
  {
    title: "Hit rate, %",
    form: plain,
    lines: {
      hits: (now, before, seconds) => {
        const hits = rate("keyspace_hits")(now, before, seconds);
        const all = hits + rate("keyspace_misses")(now, before, seconds);
        return all ? (100 * hits) / all : NaN;
      },
    },
  },
  {
    title: "Slowest command of this second, mean µs",
    form: plain,
    lines: { "a call": (now, before) => slowest(now, before)?.[1] ?? NaN },
    of: (now, before) => slowest(now, before)?.[0] ?? "",
  },
  {
    title: "Memory",
    form: size,
    lines: {
      data: value("used_memory_dataset"),
      overhead: value("used_memory_overhead"),
      clients: value("mem_clients_normal"),
      resident: value("used_memory_rss"),
    },
  },
  {
    title: "Clients",
    form: plain,
    lines: { connected: value("connected_clients"), blocked: value("blocked_clients") },
  },
  {
    title: "Network a second",
    form: size,
    lines: { in: rate("total_net_input_bytes"), out: rate("total_net_output_bytes") },
  },
  {
    title: "Keys gone a second",
    form: plain,
    lines: { evicted: rate("evicted_keys"), expired: rate("expired_keys") },
  },
  {
    title: "Would be lost now",
    form: plain,
    lines: {
      "changes since the snapshot": value("rdb_changes_since_last_save"),
      "bytes of the log": value("aof_unsynced_bytes"),
    },
  },
  {
    title: "Disk: time of an fsync, µs",
    form: plain,
    lines: {
      "mean of this second": (now, before) => {
        const count = number(now, "aof_fsyncs") - number(before, "aof_fsyncs");
        return count > 0
          ? (number(now, "aof_fsync_usec") - number(before, "aof_fsync_usec")) / count
          : NaN;
      },
      "99 %": value("aof_fsync_p99_usec"),
    },
  },
];

function Chart({ curve, data, of }: { curve: Curve; data: Series[]; of: string }) {
  return (
    <section class="card">
      <h2>{curve.title}</h2>
      <div class="legend">
        {Object.keys(curve.lines).map((name, at) => (
          <span class={`c${at}`}>
            {of || name} <b>{shown(curve, data[at + 1]!.at(-1))}</b>
          </span>
        ))}
      </div>
      <Plot kind="time" names={Object.keys(curve.lines)} form={curve.form} data={data} />
    </section>
  );
}

/** Where there is no figure there is none to show. */
const shown = (curve: Curve, value: number | null | undefined) =>
  value === null || value === undefined ? "–" : curve.form(value);

/** What there would not be if power went this moment. */
function lost(info: Info, saved: string): string {
  if (info.get("aof_enabled") === "1")
    return `${size(number(info, "aof_unsynced_bytes"))} of the log`;
  const changes = number(info, "rdb_changes_since_last_save");
  return changes ? `${changes} changes, since ${saved}` : "nothing";
}

const facts = (info: Info): [string, string][] => {
  const since = number(info, "rdb_last_save_time");
  const ago = since ? `${duration(Math.max(0, Date.now() / 1000 - since))} ago` : "never";
  const databases = [...info].filter(([name]) => /^db\d+$/.test(name));
  return [
    ["version", `${info.get("kvasir_version")} (Redis ${info.get("redis_version")})`],
    ["up", duration(number(info, "uptime_in_seconds"))],
    ["role", info.get("role") ?? ""],
    [
      "maxmemory",
      number(info, "maxmemory")
        ? `${size(number(info, "maxmemory"))}, ${info.get("maxmemory_policy")}`
        : "none",
    ],
    ["last snapshot", `${ago}, ${info.get("rdb_last_bgsave_status")}`],
    [
      "append-only file",
      info.get("aof_enabled") === "1"
        ? `${size(number(info, "aof_current_size"))}, ${info.get("aof_last_write_status")}`
        : "off",
    ],
    ["would be lost now", lost(info, ago)],
    ...(number(info, "aof_fsyncs")
      ? [
          [
            "fsync",
            `half within ${number(info, "aof_fsync_p50_usec")} µs, 99 % within ` +
              `${number(info, "aof_fsync_p99_usec")} µs, ${plain(number(info, "aof_fsyncs"))} so far`,
          ] as [string, string],
        ]
      : []),
    [
      "log tiers",
      `hot ${size(number(info, "repl_log_hot_bytes"))}, packed ${size(number(info, "repl_log_cold_packed_bytes"))}, disk ${size(number(info, "repl_log_disk_packed_bytes"))}`,
    ],
    ...databases.map(([name, text]) => [name, text.replaceAll(",", ", ")] as [string, string]),
  ];
};

/** Who follows this server, how far behind, and where what it needs is kept. */
function Replicas({ info }: { info: Info }) {
  const replicas = [...info].filter(([name]) => /^slave\d+$/.test(name));
  if (info.get("role") === "slave")
    return (
      <section class="card">
        <h2>Primary</h2>
        <p>
          {info.get("master_host")}:{info.get("master_port")}, {info.get("master_link_status")}
        </p>
      </section>
    );
  if (!replicas.length) return null;
  const end = number(info, "master_repl_offset");
  return (
    <section class="card">
      <h2>Replicas</h2>
      <Table
        head={["address", "state", "lag", "behind", "tier"]}
        rows={replicas.map(([, text]) => {
          const replica = parts(text);
          return [
            `${replica.get("ip")}:${replica.get("port")}`,
            replica.get("state"),
            `${replica.get("lag")} s`,
            size(Math.max(0, end - Number(replica.get("offset")))),
            replica.get("tier"),
          ];
        })}
      />
    </section>
  );
}

export function Live() {
  const history = useRef(
    curves.map((curve) => [[], ...Object.keys(curve.lines).map(() => [])] as Series[]),
  );
  const before = useRef<[number, Info] | null>(null);
  const names = useRef(curves.map(() => ""));
  const [info, setInfo] = useState<Info | string | null>(null);
  useEffect(() => {
    let isOver = false;
    const look = async () => {
      const [reply] = await calls([["INFO", "default", "commandstats"]]);
      if (isOver) return;
      if (reply instanceof Failure) return setInfo(reply.text);
      const [now, figures] = [Date.now() / 1000, parseInfo(show(reply))];
      const [then, last] = before.current ?? [now - 1, figures];
      names.current = curves.map((curve) => curve.of?.(figures, last) ?? "");
      curves.forEach((curve, at) => {
        const data = history.current[at]!;
        data[0]!.push(now);
        Object.values(curve.lines).forEach((line, of) => {
          const value = line(figures, last, Math.max(0.1, now - then));
          data[of + 1]!.push(isNaN(value) ? null : value);
        });
        if (data[0]!.length > SECONDS) data.forEach((series) => series.shift());
      });
      before.current = [now, figures];
      setInfo(figures);
    };
    const stop = repeat(1000, look);
    return () => {
      isOver = true;
      stop();
    };
  }, []);
  if (info === null) return null;
  if (typeof info === "string") return <p class="failure">The figures are not shown: {info}</p>;
  return (
    <>
      <div class="grid">
        {curves.map((curve, at) => (
          <Chart curve={curve} data={history.current[at]!} of={names.current[at]!} />
        ))}
      </div>
      <Replicas info={info} />
      <section class="card">
        <table class="facts">
          <tbody>
            {facts(info).map(([name, text]) => (
              <tr>
                <th>{name}</th>
                <td>{text}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </>
  );
}
