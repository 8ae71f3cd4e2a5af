// What goes on, every second: figures of INFO as curves and as numbers.

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { calls } from "./api";
import { Failure, show } from "./resp";

const SECONDS = 300;
type Info = Map<string, string>;

export function parseInfo(text: string): Info {
  const found: Info = new Map();
  for (const line of text.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0 && !line.startsWith("#"))
      found.set(line.slice(0, colon), line.slice(colon + 1).trim());
  }
  return found;
}

const number = (info: Info, name: string) => Number(info.get(name) ?? 0);

export function size(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; Math.abs(bytes) >= 1024 && unit < 4; unit++) bytes /= 1024;
  return `${unit ? bytes.toFixed(bytes < 10 ? 2 : 1) : Math.round(bytes)} ${units[unit]}`;
}

const plain = (value: number) =>
  value >= 1e6
    ? `${(value / 1e6).toFixed(1)}M`
    : value >= 1e4
      ? `${(value / 1e3).toFixed(1)}k`
      : String(+value.toFixed(2));

interface Curve {
  title: string;
  form: (value: number) => string;
  /** By name: from the figures, and those of a second ago. */
  lines: Record<string, (now: Info, before: Info, seconds: number) => number>;
}

const rate =
  (...names: string[]) =>
  (now: Info, before: Info, seconds: number) =>
    Math.max(
      0,
      names.reduce((sum, name) => sum + number(now, name) - number(before, name), 0) / seconds,
    );
const value = (name: string) => (now: Info) => number(now, name);

function percentile(which: string) {
  return (now: Info) => {
    let worst = 0;
    for (const [name, text] of now) {
      const found =
        name.startsWith("latency_percentiles_usec_") && text.match(`(?:^|,)${which}=([0-9.]+)`);
      if (found && !name.includes("|")) worst = Math.max(worst, Number(found[1]));
    }
    return worst;
  };
}

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
    title: "Latency of the slowest command, µs",
    form: plain,
    lines: { "50 %": percentile("p50"), "99 %": percentile("p99") },
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
      changes: value("rdb_changes_since_last_save"),
      "log bytes": value("aof_buffer_length"),
    },
  },
];

const colours = ["#2f6fde", "#d9822b", "#2f9e6e", "#b04ad0"];
const css = (name: string) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function Chart({ curve, data }: { curve: Curve; data: number[][] }) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  useEffect(() => {
    const box = place.current!;
    const axis = {
      stroke: css("--soft"),
      grid: { stroke: css("--line"), width: 1 },
      ticks: { show: false },
    };
    plot.current = new uPlot(
      {
        width: box.clientWidth,
        height: 150,
        legend: { show: false },
        cursor: { show: false },
        scales: { y: { range: (_, low, high) => [Math.min(0, low || 0), (high || 1) * 1.1 || 1] } },
        axes: [
          { ...axis, space: 80 },
          { ...axis, size: 64, values: (_, all) => all.map(curve.form) },
        ],
        series: [
          {},
          ...Object.keys(curve.lines).map((label, at) => ({
            label,
            stroke: colours[at]!,
            width: 1.5,
          })),
        ],
      },
      data as uPlot.AlignedData,
      box,
    );
    const watch = new ResizeObserver(() =>
      plot.current?.setSize({ width: box.clientWidth, height: 150 }),
    );
    watch.observe(box);
    return () => {
      watch.disconnect();
      plot.current?.destroy();
    };
  }, []);
  useEffect(
    () => plot.current?.setData(data as uPlot.AlignedData),
    [data[0]!.length, data[0]!.at(-1)],
  );
  return (
    <section class="card">
      <h2>{curve.title}</h2>
      <div class="legend">
        {Object.keys(curve.lines).map((name, at) => (
          <span class={`c${at}`}>
            {name} <b>{curve.form(data[at + 1]!.at(-1) || 0)}</b>
          </span>
        ))}
      </div>
      <div ref={place} />
    </section>
  );
}

const facts = (info: Info): [string, string][] => {
  const since = number(info, "rdb_last_save_time");
  const ago = since ? `${Math.round(Date.now() / 1000 - since)} s ago` : "never";
  const databases = [...info].filter(([name]) => /^db\d+$/.test(name));
  const replicas = [...info].filter(([name]) => /^slave\d+$/.test(name));
  return [
    ["version", `${info.get("kvasir_version")} (Redis ${info.get("redis_version")})`],
    ["up", `${number(info, "uptime_in_seconds")} s`],
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
    [
      "log tiers",
      `hot ${size(number(info, "repl_log_hot_bytes"))}, packed ${size(number(info, "repl_log_cold_packed_bytes"))}, disk ${size(number(info, "repl_log_disk_packed_bytes"))}`,
    ],
    ...(info.has("repl_log_slowest_replica")
      ? [["slowest replica", info.get("repl_log_slowest_replica")!] as [string, string]]
      : []),
    ...replicas.map(([name, text]) => [`replica ${name.slice(5)}`, text] as [string, string]),
    ...databases.map(([name, text]) => [name, text] as [string, string]),
  ];
};

export function Live() {
  const history = useRef(
    curves.map((curve) => [[], ...Object.keys(curve.lines).map(() => [])] as number[][]),
  );
  const before = useRef<[number, Info] | null>(null);
  const [info, setInfo] = useState<Info | string | null>(null);
  useEffect(() => {
    let isOver = false;
    const look = async () => {
      const [reply] = await calls([["INFO", "default", "latencystats"]]);
      if (isOver) return;
      if (reply instanceof Failure) return setInfo(reply.text);
      const [now, figures] = [Date.now() / 1000, parseInfo(show(reply))];
      const [then, last] = before.current ?? [now - 1, figures];
      curves.forEach((curve, at) => {
        const data = history.current[at]!;
        data[0]!.push(now);
        Object.values(curve.lines).forEach((line, of) =>
          data[of + 1]!.push(line(figures, last, Math.max(0.1, now - then))),
        );
        if (data[0]!.length > SECONDS) data.forEach((series) => series.shift());
      });
      before.current = [now, figures];
      setInfo(figures);
    };
    void look();
    const timer = setInterval(look, 1000);
    return () => {
      isOver = true;
      clearInterval(timer);
    };
  }, []);
  if (info === null) return null;
  if (typeof info === "string") return <p class="failure">The figures are not shown: {info}</p>;
  return (
    <>
      <div class="grid">
        {curves.map((curve, at) => (
          <Chart curve={curve} data={history.current[at]!} />
        ))}
      </div>
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
