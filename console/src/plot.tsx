// One plot: curves over time, points, or bars. Colours are those of the page, also when it turns
// dark or light while it is open.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

const HEIGHT = 150;
/** Each is told apart on light and on dark cards. */
export const colours = ["#2f6fde", "#d9822b", "#2f9e6e", "#b04ad0"];

export const css = (name: string) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export type Form = (value: number) => string;
export type Kind = "time" | "points" | "bars";

const isDark = matchMedia("(prefers-color-scheme: dark)");

interface Wanted {
  kind: Kind;
  names: string[];
  form: Form;
  /** What stands under the plot at a place. */
  label?: Form;
  height?: number;
}

function options({ kind, names, form, label, height }: Wanted, width: number): uPlot.Options {
  const axis = {
    stroke: css("--soft"),
    grid: { stroke: css("--line"), width: 1 },
    ticks: { show: false },
    font: "12px system-ui, sans-serif",
  };
  const bars = uPlot.paths.bars!({ size: [0.8, 60] });
  return {
    width,
    height: height ?? HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    scales: {
      x: { time: kind === "time", ...(kind === "bars" && { range: wide }) },
      y: kind === "points" ? {} : { range: fromZero },
    },
    axes: [
      { ...axis, space: 80, ...(label && { values: (_, all) => all.map(label) }) },
      { ...axis, size: 76, values: (_, all) => all.map(form) },
    ],
    series: [
      {},
      ...names.map((name, at) => ({
        label: name,
        stroke: colours[at % colours.length]!,
        width: 1.5,
        ...(kind === "bars" && { fill: colours[at]!, paths: bars, points: { show: false } }),
        ...(kind === "points" && { paths: () => null, points: { show: true, size: 5 } }),
      })),
    ],
  };
}

const wide = (_: uPlot, low: number, high: number): [number, number] => [low - 0.6, high + 0.6];
const fromZero = (_: uPlot, low: number, high: number): [number, number] => [
  Math.min(0, low || 0),
  (high || 1) * 1.1 || 1,
];

export function Plot({ data, ...wanted }: Wanted & { data: (number | null)[][] }) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  useEffect(() => {
    const box = place.current!;
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(wanted, box.clientWidth), data as uPlot.AlignedData, box);
    };
    draw();
    const watch = new ResizeObserver(() =>
      plot.current?.setSize({ width: box.clientWidth, height: wanted.height ?? HEIGHT }),
    );
    watch.observe(box);
    isDark.addEventListener("change", draw);
    return () => {
      isDark.removeEventListener("change", draw);
      watch.disconnect();
      plot.current?.destroy();
    };
  }, [wanted.kind, wanted.names.join()]);
  useEffect(
    () => plot.current?.setData(data as uPlot.AlignedData),
    [data, data[0]!.length, data[0]!.at(-1)],
  );
  return <div ref={place} />;
}
