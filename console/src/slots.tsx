// Slots: how much each is used or has, as a heat map, also without a cluster; whose each is, and the
// nodes, in one.

import { useEffect, useState } from "preact/hooks";
import { Tree } from "./cli";
import { plain } from "./figures";
import { Asked, Choice, Table } from "./parts";
import { css } from "./plot";
import { Pairs, type Reply, list, pairs, show } from "./resp";

const SLOTS = 16384;
/** Slots in a row of the map. */
const WIDTH = 128;
const MEASURES = ["keys", "calls", "reads", "writes", "net", "cpu"];
const UNITS: Record<string, string> = { net: "bytes", cpu: "µs" };
/** Slots that are listed. */
const TOP = 10;

function Map_({
  paint,
  label,
  onPick,
}: {
  paint: (context: CanvasRenderingContext2D) => void;
  label: string;
  onPick?: (slot: number) => void;
}) {
  const [canvas, setCanvas] = useState<HTMLCanvasElement | null>(null);
  useEffect(() => {
    const context = canvas?.getContext("2d");
    if (!context) return;
    context.clearRect(0, 0, WIDTH, SLOTS / WIDTH);
    paint(context);
  });
  const pick = (event: MouseEvent) => {
    const box = canvas!.getBoundingClientRect();
    const at = (from: number, length: number, count: number) =>
      Math.min(count - 1, Math.max(0, Math.floor((from / length) * count)));
    onPick?.(
      at(event.clientY - box.top, box.height, SLOTS / WIDTH) * WIDTH +
        at(event.clientX - box.left, box.width, WIDTH),
    );
  };
  return (
    <canvas
      ref={setCanvas}
      width={WIDTH}
      height={SLOTS / WIDTH}
      class="slots"
      aria-label={label}
      onMouseMove={pick}
      onClick={pick}
    />
  );
}

/** From what is cold to what is hot, as red, green and blue; dark pages begin dark. */
function ramp(): [number, number, number][] {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  return isDark
    ? [
        [34, 42, 56],
        [43, 92, 168],
        [217, 130, 43],
        [255, 236, 170],
      ]
    : [
        [232, 236, 243],
        [120, 165, 235],
        [217, 110, 43],
        [120, 16, 16],
      ];
}

function colour(part: number, steps: [number, number, number][]): [number, number, number] {
  const at = Math.min(steps.length - 1.001, part * (steps.length - 1));
  const [one, other] = [steps[Math.floor(at)]!, steps[Math.floor(at) + 1]!];
  const between = at - Math.floor(at);
  return [0, 1, 2].map((of) => one[of]! + (other[of]! - one[of]!) * between) as [
    number,
    number,
    number,
  ];
}

/** So many doublings from the average are as hot, or as cold, as there is a colour for. */
const DOUBLINGS = 5;

/** Each slot by how far it is from the average of those that have something. */
function paintHeat(context: CanvasRenderingContext2D, values: number[], average: number): void {
  const image = context.createImageData(WIDTH, SLOTS / WIDTH);
  const steps = ramp();
  values.forEach((value, slot) => {
    const above = Math.log2(value / average) / DOUBLINGS;
    const part = value ? Math.min(1, Math.max(0.1, 0.5 + above / 2)) : 0;
    image.data.set([...colour(part, steps), 255], slot * 4);
  });
  context.putImageData(image, 0, 0);
}

function Heat({ values, unit }: { values: number[]; unit: string }) {
  const [at, setAt] = useState(-1);
  const used = values.filter((value) => value > 0).length;
  const sum = values.reduce((sum, value) => sum + value, 0);
  const top = values
    .map((value, slot): [number, number] => [value, slot])
    .filter(([value]) => value > 0)
    .sort((one, other) => other[0] - one[0])
    .slice(0, TOP);
  return (
    <div class="heat">
      <div>
        <Map_
          label="heat of slots"
          paint={(context) => paintHeat(context, values, sum / used)}
          onPick={setAt}
        />
        <p class="facts">
          {at < 0 ? (
            "The first slots are at the top left."
          ) : (
            <>
              slot {at}: <b>{plain(values[at]!)}</b> {unit}
            </>
          )}
        </p>
      </div>
      <div>
        <p>
          {plain(sum)} {unit} in {used} slots
          {used > 0 && (
            <>
              , {plain(sum / used)} in each on average. A slot's colour is how far it is from that:{" "}
              <Scale />
            </>
          )}
        </p>
        <Table
          head={["slot", unit, "of all"]}
          rows={top.map(([value, slot]) => [
            slot,
            plain(value),
            `${((100 * value) / sum).toFixed(2)} %`,
          ])}
        />
      </div>
    </div>
  );
}

/** The colours, from a slot with nothing to one of 32 times the average. */
function Scale() {
  const paint = (canvas: HTMLCanvasElement | null) => {
    const context = canvas?.getContext("2d");
    for (let at = 0; context && at < 120; at++) {
      context.fillStyle = `rgb(${colour(at / 119, ramp()).join()})`;
      context.fillRect(at, 0, 1, 10);
    }
  };
  return (
    <span class="scale">
      none <canvas ref={paint} width={120} height={10} aria-hidden="true" /> 32 times
    </span>
  );
}

function HeatOfSlots() {
  const [by, setBy] = useState("keys");
  return (
    <section class="card">
      <h2>Heat of slots</h2>
      <div class="line">
        <Choice label="by" of={MEASURES} value={by} onPick={setBy} />
      </div>
      <Asked key={by} words={["HOTKEYS", "SLOTS", "BY", by]} every={2000} isBare>
        {(reply) => <Heat values={list(reply).map(Number)} unit={UNITS[by] ?? by} />}
      </Asked>
    </section>
  );
}

interface Shard {
  slots: [number, number][];
  nodes: Reply[];
  name: string;
}

function shardOf(reply: Reply): Shard {
  const facts = new Map(pairs(reply));
  const ends = list(facts.get("slots")).map((slot) => Number(show(slot)));
  const slots = ends.flatMap((end, at) =>
    at % 2 ? [] : [[end, ends[at + 1]!] as [number, number]],
  );
  const nodes = list(facts.get("nodes"));
  const first = new Map(pairs(nodes[0]));
  return { slots, nodes, name: `${show(first.get("endpoint"))}:${show(first.get("port"))}` };
}

const TOLD = ["endpoint", "port", "role", "replication-offset", "health"];
const hue = (at: number) => `hsl(${(at * 137) % 360} 55% 55%)`;

/** Slots by who has them. */
function Shards({ shards }: { shards: Shard[] }) {
  const [at, setAt] = useState(-1);
  const count = (slots: [number, number][]) =>
    slots.reduce((sum, [first, last]) => sum + last - first + 1, 0);
  const paint = (context: CanvasRenderingContext2D) => {
    context.fillStyle = css("--back");
    context.fillRect(0, 0, WIDTH, SLOTS / WIDTH);
    shards.forEach((shard, of) => {
      context.fillStyle = hue(of);
      for (const [first, last] of shard.slots)
        for (let slot = first; slot <= last; slot++)
          context.fillRect(slot % WIDTH, Math.floor(slot / WIDTH), 1, 1);
    });
  };
  const owner = shards.find((shard) =>
    shard.slots.some(([first, last]) => first <= at && at <= last),
  );
  return (
    <>
      <Map_ label="slots by shard" paint={paint} onPick={setAt} />
      <p class="facts">
        {at < 0
          ? `${shards.reduce((sum, shard) => sum + count(shard.slots), 0)} of ${SLOTS} slots are somebody's.`
          : `slot ${at}: ${owner ? owner.name : "nobody's"}`}
      </p>
      {shards.map((shard, of) => (
        <article>
          <h3>
            <span class="swatch" ref={(box) => void (box && (box.style.background = hue(of)))} />{" "}
            {shard.name}: {count(shard.slots)} slots
          </h3>
          {shard.nodes.map((node) => (
            <Tree
              reply={
                node instanceof Pairs
                  ? new Pairs(node.pairs.filter(([name]) => TOLD.includes(show(name))))
                  : node
              }
            />
          ))}
        </article>
      ))}
    </>
  );
}

export function Slots() {
  return (
    <>
      <HeatOfSlots />
      <section class="card">
        <h2>Slots of the cluster</h2>
        <Asked words={["CLUSTER", "SHARDS"]} every={3000} isBare>
          {(reply) => <Shards shards={list(reply).map(shardOf)} />}
        </Asked>
      </section>
    </>
  );
}
