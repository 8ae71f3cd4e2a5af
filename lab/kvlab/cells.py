"""Cells: what is run once, and the lines that it leaves.

Every line of `runs.jsonl` is one measurement or one reason why there is none. A line is written
whole and at once, so a crash loses at most the cell that was running; the next call goes on with
the first cell that has no lines.
"""

import json
import os
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from kvlab.machine import Missing, wait_until_quiet

PATIENCE_S = {"quick": 3, "full": 20}
"""How long a cell waits for others to leave the processors alone."""


@dataclass(frozen=True)
class Cell:
    id: str
    """study/part/server/case/run."""
    run: Callable
    """From a context to a list of measurements: dicts with `server`, `case` and figures."""
    expected_s: float
    options: dict = field(default_factory=dict)
    """For the reader of the raw runs."""

    @property
    def study(self) -> str:
        return self.id.split("/")[0]

    @property
    def part(self) -> str:
        return self.id.split("/")[1]


@dataclass
class Context:
    """What every cell needs."""

    kinds: dict
    kvasir: Path
    quick: bool
    seed: int

    def kind(self, name):
        if name not in self.kinds:
            raise Missing(f"{name} is not here")
        return self.kinds[name]


class Store:
    def __init__(self, path: Path):
        self.path = path
        self.lines = []
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            self.lines = read(path)
            # A line that was cut off would swallow the next one.
            text = "".join(json.dumps(line) + "\n" for line in self.lines)
            replace(path, text)

    def done(self, again: bool) -> set:
        """Cells that have their lines; those without a figure are tried again if told so."""
        return {line["cell"] for line in self.lines if not (again and "missing" in line)}

    def forget(self, cell: str):
        self.lines = [line for line in self.lines if line["cell"] != cell]
        replace(self.path, "".join(json.dumps(line) + "\n" for line in self.lines))

    def add(self, lines):
        """Where the disk is full the report still says so, as long as this call lives."""
        try:
            with open(self.path, "a") as file:
                file.write("".join(json.dumps(line) + "\n" for line in lines))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            first = {name: value for name, value in lines[0].items() if name != "measured"}
            lines = [first | {"missing": f"its lines could not be kept: {error.strerror}"}]
        self.lines += lines


def read(path: Path) -> list[dict]:
    """All whole lines."""
    found = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def replace(path: Path, text: str):
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


def run_cell(cell: Cell, context: Context, store: Store, base: dict) -> str | None:
    """Runs a cell and stores its lines; why there is nothing, if so."""
    busy = wait_until_quiet(PATIENCE_S["quick" if context.quick else "full"])
    began = time.time()
    common = {"cell": cell.id, "study": cell.study, "part": cell.part, "seed": context.seed}
    common |= base | {"options": cell.options, "began": round(began, 3),
                      "others_busy": busy}
    reason, lines = None, []
    try:
        lines = cell.run(context)
        if not lines:
            reason = "it measured nothing"
    except Missing as error:
        reason = str(error)
    except OSError as error:
        reason = f"{type(error).__name__}: {error}"
    except psutil.Error as error:
        reason = f"a server ended while it was measured: {error}"
    except (ValueError, KeyError, ArithmeticError) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__} in {Path(where.filename).name}: {error}"
    took = {"took_s": round(time.time() - began, 3)}
    if reason:
        store.add([common | took | {"missing": reason}])
    else:
        store.add([common | took | {"measured": line} for line in lines])
    return reason
