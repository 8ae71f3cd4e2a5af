"""What all studies share: claims, lookups in the lines of the raw runs, and tables of them."""

from dataclasses import dataclass, field

import pandas as pd

from kvlab.stats import spread

HOLDS, DIFFERS, UNTESTED = "holds", "does not hold", "cannot be tested here"
UNMEASURED = "not measured this time"
PEERS = ["redis", "valkey", "kvasir"]


@dataclass
class Claim:
    """What a study says, what it measured, and what comes of it here."""

    text: str
    paper: str
    verdict: str
    why: str
    kvasir: str = "–"


@dataclass
class Table:
    title: str
    frame: pd.DataFrame
    note: str = ""


@dataclass
class Plot:
    title: str
    svg: str
    note: str = ""


@dataclass
class Text:
    """A paragraph, or the reason why there is nothing to show."""

    text: str


@dataclass
class Report:
    """What a study has to say."""

    title: str
    about: str
    parts: list = field(default_factory=list)
    claims: list = field(default_factory=list)
    differs: list = field(default_factory=list)
    """Pairs: what is otherwise than in the paper, and why."""


class Runs:
    """The lines of one study."""

    def __init__(self, lines, study):
        self.lines = [line for line in lines if line["study"] == study]
        self.frame = pd.DataFrame([
            {"cell": line["cell"], "part": line["part"], "run": line["cell"].split("/")[-1],
             **line["measured"]}
            for line in self.lines if "measured" in line
        ])

    def part(self, name) -> pd.DataFrame:
        if self.frame.empty:
            return self.frame
        return self.frame[self.frame["part"] == name].dropna(axis=1, how="all")

    def values(self, part, server, case, metric) -> list:
        frame = self.part(part)
        if frame.empty or metric not in frame:
            return []
        chosen = frame[(frame["server"] == server) & (frame["case"] == case)]
        return list(chosen[metric].dropna())

    def median(self, part, server, case, metric) -> float | None:
        found = spread(self.values(part, server, case, metric))
        return found.median if found else None

    def cases(self, part) -> list:
        frame = self.part(part)
        return [] if frame.empty else list(dict.fromkeys(frame["case"]))

    def servers(self, part) -> list:
        frame = self.part(part)
        seen = set() if frame.empty else set(frame["server"])
        return [name for name in [*PEERS, "kvasir-epoll", "memcached"] if name in seen]

    def why_missing(self, part) -> str:
        reasons = dict.fromkeys(
            line["missing"] for line in self.lines if line["part"] == part and "missing" in line
        )
        return "; ".join(reasons) or "it was not run"


NAMES = {"redis": "Redis", "valkey": "Valkey", "kvasir": "Kvasir", "memcached": "memcached",
         "kvasir-epoll": "Kvasir (epoll)"}


def show(value, decimals=None) -> str:
    """Three figures or more, without powers of ten."""
    if value is None or value != value:
        return "–"
    if decimals is None:
        size = abs(value)
        decimals = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
        if size < 1e-9:
            return "0"
        if size < 0.01:
            return f"{value:.2g}"
    return f"{value:,.{decimals}f}"


def show_spread(values, decimals=None) -> str:
    """Median, and in brackets smallest, largest and number of runs."""
    found = spread(values)
    if not found:
        return "–"
    text = show(found.median, decimals)
    if found.count > 1:
        low, high = show(found.low, decimals), show(found.high, decimals)
        text += f" ({low} to {high}, {found.count})"
    return text


def by_server(runs, part, metric, title, decimals=None, cases=None, note="", paper=None,
              first="case") -> Table | Text:
    """Cases down, servers across, medians with their spread; and the paper's own figures."""
    servers = runs.servers(part)
    found = runs.cases(part)
    cases = found if cases is None else [case for case in cases if case in found]
    if not cases:
        return Text(f"{title}: no figures, because {runs.why_missing(part)}.")
    rows = []
    for case in cases:
        row = {first: case}
        if paper is not None:
            row["the paper"] = paper.get(case, "–")
        for server in servers:
            row[NAMES[server]] = show_spread(runs.values(part, server, case, metric), decimals)
        rows.append(row)
    return Table(title, pd.DataFrame(rows), note)


def judged(values_ok) -> str:
    """Of a condition that may lack its figures."""
    return UNMEASURED if values_ok is None else HOLDS if values_ok else DIFFERS


def percent(value) -> str:
    return "–" if value is None else f"{value:.1f} %"
