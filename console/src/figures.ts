// Numbers as people read them, and the figures of INFO.

export type Info = Map<string, string>;

export function parseInfo(text: string): Info {
  const found: Info = new Map();
  for (const line of text.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0 && !line.startsWith("#"))
      found.set(line.slice(0, colon), line.slice(colon + 1).trim());
  }
  return found;
}

/** A field that is several, `a=1,b=2`. */
export const parts = (text: string): Map<string, string> =>
  new Map(text.split(",").map((part) => part.split("=", 2) as [string, string]));

export const number = (info: Info, name: string) => Number(info.get(name) ?? 0);

/** The command whose calls between two looks took longest in the mean, and how long, in µs. */
export function slowest(now: Info, before: Info): [string, number] | null {
  let worst: [string, number] | null = null;
  for (const [name, text] of now) {
    if (!name.startsWith("cmdstat_")) continue;
    const figures = parts(text);
    const last = parts(before.get(name) ?? "");
    const since = (field: string) => Number(figures.get(field) ?? 0) - Number(last.get(field) ?? 0);
    const calls = since("calls");
    // Figures that were reset are less than before.
    if (calls <= 0 || since("usec") < 0) continue;
    const mean = since("usec") / calls;
    if (!worst || mean > worst[1]) worst = [name.slice("cmdstat_".length), mean];
  }
  return worst;
}

export function size(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; Math.abs(bytes) >= 1024 && unit < 4; unit++) bytes /= 1024;
  return `${unit ? bytes.toFixed(bytes < 10 ? 2 : 1) : Math.round(bytes)} ${units[unit]}`;
}

export const plain = (value: number) =>
  Math.abs(value) >= 1e9
    ? value.toExponential(2)
    : Math.abs(value) >= 1e6
      ? `${(value / 1e6).toFixed(1)}M`
      : Math.abs(value) >= 1e4
        ? `${(value / 1e3).toFixed(1)}k`
        : String(+value.toPrecision(4));

export function duration(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}
