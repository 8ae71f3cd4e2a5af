"""lab/run STUDY: the plan, the progress, and at the end the report."""

import argparse
import hashlib
import json
import signal
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from kvlab import page
from kvlab.cells import Context, Store, run_cell
from kvlab.machine import HOME, ROOT, describe, find_kinds, find_kvasir
from kvlab.stats import SEED
from kvlab.studies import STUDIES

console = Console(highlight=False)


def parse(words):
    names = ", ".join(STUDIES)
    parser = argparse.ArgumentParser(
        prog="lab/run", description=f"Studies: {names}. `lab/run test` runs the lab's own tests.")
    parser.add_argument("study", choices=[*STUDIES, "all"], help=f"{names}, or all of them")
    parser.add_argument("--quick", action="store_true", help="minutes instead of hours")
    parser.add_argument("--kvasir", metavar="PATH",
                        help="Kvasir's program, if not target/release/kvasir-server")
    parser.add_argument("--minutes", type=float, metavar="N",
                        help="begin no cell that would end later than that; the next call goes on")
    parser.add_argument("--only", metavar="TEXT", default="",
                        help="only cells whose name has this in it: study/part/server/case/run")
    parser.add_argument("--again", action="store_true",
                        help="try cells again that had no figures")
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    parser.add_argument("--list", action="store_true", help="print the cells and stop")
    parser.add_argument("--runs-only", action="store_true", help="make no page")
    parser.add_argument("--report-only", action="store_true", help="measure nothing")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", metavar="DIR", type=Path,
                        help="where the report goes, if not to target/lab/report-MODE")
    return parser.parse_args(words)


def plan(options):
    names = list(STUDIES) if options.study == "all" else [options.study]
    quick, seed = options.quick, options.seed
    cells = [cell for name in names for cell in STUDIES[name].cells(quick, seed)]
    # A page that is made early lacks little: first the design's least, two replicates, and one
    # run of everything, then its other replicates, then what waits for a quiet machine, which may
    # take long, then the other runs.
    run = [int(cell.id.rsplit("/", 1)[1]) for cell in cells]
    turn = [turn_of(cell, number) for cell, number in zip(cells, run)]
    rank = [(turn, cell.part != "design", run) for turn, cell, run in zip(turn, cells, run)]
    cells = [cells[at] for at in sorted(range(len(cells)), key=rank.__getitem__)]
    return names, [cell for cell in cells if options.only in cell.id]


def turn_of(cell, run) -> int:
    if cell.part == "design":
        return 0 if run <= 2 else 1
    return 3 if run > 1 else 2 if cell.part == "aof" else 0


def folder(options, kvasir: Path) -> Path:
    """Another program has another folder: figures of two are never mixed."""
    mode = "quick" if options.quick else "full"
    program = hashlib.sha256(kvasir.read_bytes()).hexdigest()[:10] if kvasir.is_file() else "none"
    return HOME / f"runs-{mode}-{program}"


def kept(path: Path, store, machine: dict) -> dict:
    """The machine that the figures are of: a report may be made on another one."""
    if store.lines and path.is_file():
        return json.loads(path.read_text())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(machine, indent=1))
    return machine


def measure(cells, context, store, base, options) -> float:
    """Runs what has no lines yet; how many seconds that took."""
    done = store.done(options.again)
    left = [cell for cell in cells if cell.id not in done]
    if len(left) < len(cells):
        console.print(f"{len(cells) - len(left)} of {len(cells)} cells are there already")
    began, expected_total = time.monotonic(), sum(cell.expected_s for cell in left)
    columns = [BarColumn(30), TextColumn("{task.completed:.0f} %"), TimeElapsedColumn(),
               TextColumn("left {task.fields[left]}"), TextColumn("{task.description}")]
    pace = Pace(left)
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=100, left=pace.show())
        for number, cell in enumerate(left):
            if options.minutes and not fits(cell, pace, began, options.minutes * 60):
                console.print(f"{len(left) - number} cells are left for the next call")
                break
            progress.update(task, description=cell.id, left=pace.show())
            if not console.is_terminal:
                console.print(f"[{number + 1}/{len(left)}, left {pace.show()}] {cell.id}")
            start = time.monotonic()
            if options.again:
                store.forget(cell.id)
            reason = run_cell(cell, context, store, base)
            pace.add(cell.expected_s, time.monotonic() - start)
            if reason:
                console.print(f"no figures: {cell.id}: {reason}", style="yellow", markup=False)
            progress.update(task, completed=100 * pace.expected_done / max(expected_total, 1e-9))
    return time.monotonic() - began


def fits(cell, pace, began, seconds) -> bool:
    return time.monotonic() - began + cell.expected_s * pace.factor < seconds


class Pace:
    """How long the rest takes: what was expected, times how wrong that was so far."""

    def __init__(self, cells):
        self.expected_left = sum(cell.expected_s for cell in cells)
        self.expected_done = self.took = 0.0

    def add(self, expected_s, took_s):
        self.expected_done += expected_s
        self.expected_left -= expected_s
        self.took += took_s

    @property
    def factor(self) -> float:
        # The first cells say little: they count as much as 30 s that were right.
        return (self.took + 30) / (self.expected_done + 30)

    def show(self) -> str:
        seconds = max(0.0, self.expected_left * self.factor)
        return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def main(words) -> int:
    options = parse(words)
    names, cells = plan(options)
    if options.list:
        for cell in cells:
            console.print(f"{cell.id}  about {cell.expected_s:.0f} s", markup=False)
        return 0
    kvasir = find_kvasir(options.kvasir)
    kinds = find_kinds(kvasir)
    for name in ("redis", "valkey", "kvasir", "memcached"):
        if name not in kinds:
            console.print(f"{name} is not here: its cells stay empty (`cargo xtask ci --only "
                          "oracle` installs the peers, `cargo build --release` builds Kvasir)")
    runs = folder(options, kvasir)
    path = runs / "runs.jsonl"
    if options.fresh:
        path.unlink(missing_ok=True)
    store = Store(path)
    machine = kept(runs / "machine.json", store, describe(kvasir, kinds.values()))
    base = {"commit": machine["commit"], "kvasir_program": machine["kvasir_program"],
            "mode": "quick" if options.quick else "full"}
    context = Context(kinds, kvasir, options.quick, options.seed)
    took = 0.0
    try:
        if not options.report_only:
            took = measure(cells, context, store, base, options)
    except KeyboardInterrupt:
        console.print("stopped; the next call goes on with the cell that was running")
    if options.runs_only:
        console.print(f"{took / 60:.1f} minutes; {len(store.done(True))} cells with figures")
        return 0
    out = options.out or HOME / f"report-{base['mode']}"
    papers = json.loads((ROOT / "lab/papers/studies.json").read_text())
    try:
        page.write(out, names, cells, store, machine, papers, options)
    except OSError as error:
        console.print(f"the report cannot be written: {error}", style="red")
        return 1
    missing = sum("missing" in line for line in store.lines)
    console.print(f"{took / 60:.1f} minutes; {len(store.done(True))} cells with figures, "
                  f"{missing} without; {out / 'report.html'}")
    return 0


if __name__ == "__main__":
    # Who is told to end leaves a report and the machine as they were.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
