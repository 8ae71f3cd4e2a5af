"""Study 004: CP-Redis, compressed values and snapshots in parallel."""

import subprocess

from kvlab import bench, load, plots
from kvlab.cells import Cell
from kvlab.machine import HOME, Missing, need_memory, server_cores
from kvlab.servers import Server
from kvlab.stats import ratio
from kvlab.studies.common import (
    NAMES, PEERS, Claim, Plot, Report, Runs, Text, by_server, judged, show,
)

COUNTS = [100_000, 500_000, 2_500_000]
SIZES = [2, 20, 200, 2_000, 20_000]
ALGORITHMS = ["no", "lzf", "lz4", "zstd"]
"""Kvasir's; its peers keep values as they come."""


def workloads():
    """W1 to W15, and R1 to R15 after them: the number of keys grows slowest."""
    return [(number + 1, count, size) for number, (count, size) in
            enumerate((count, size) for count in COUNTS for size in SIZES)]


def cells(quick, seed):
    found = []
    part = 0.02 if quick else 1.0
    for run in range(1, (1 if quick else 3) + 1):
        for server in PEERS:
            for algorithm in (["no", "lzf"] if quick else ALGORITHMS):
                # The study's own counts, once, take minutes: each figure is of millions of calls.
                if run == 1 and (server == "kvasir" or algorithm == "no"):
                    found.append(workload_cell(server, algorithm, part, run, seed + run))
            size, small = ["--keys", 1_000_000], ["--keys", 500_000]
            found.append(bench.cell("004", "compression", "compression", server, run, 25, *small))
            found.append(bench.cell("004", "snapshot", "snapshot", server, run, 37,
                                    "--only", "threads 2, files", *small))
            found.append(bench.cell("004", "copied", "snapshot", server, run, 20,
                                    "--only", "under load", *size))
    return found


def text_file():
    """Debian's package index: real text, of which values are cut."""
    path = HOME / "package-index"
    if not path.is_file():
        try:
            text = subprocess.run(["apt-cache", "dumpavail"], capture_output=True).stdout
        except FileNotFoundError:
            raise Missing("apt-cache is not here, whose package index is the text") from None
        if len(text) < 10_000_000:
            raise Missing("the package index is too short: apt-get update")
        new = path.with_suffix(".new")
        new.write_bytes(text)
        new.rename(path)
    return path


def workload_cell(server, algorithm, part, run, seed):
    options = {"value_compression": algorithm, "counts": COUNTS, "part_of_counts": part,
               "sizes": SIZES, "values": "Debian's package index", "clients": 50, "pipeline": 16}

    def measure(context):
        found, values = [], text_file()
        for number, count, size in workloads():
            found += one_workload(context, server, algorithm, number, max(1000, int(count * part)),
                                  size, values, seed)
        return found

    return Cell(f"004/workloads/{server}/{algorithm}/{run}", measure,
                8 if part < 1 else 300, options)


def one_workload(context, server, algorithm, number, count, size, values, seed):
    """Inserting is Wn, looking up what was inserted Rn."""
    case = f"{number}: {count:,} × {size:,} B"  # W and R of the same number share it.
    row = {"server": name_of(server, algorithm), "case": case}
    try:
        need_memory(count * (size + 200) * 1.5)
    except Missing as error:
        return [row | {"why": str(error)}]
    more = ["--value-compression", algorithm] if algorithm != "no" else []
    usual = {"clients": 50, "pipeline": 16, "records": count, "requests": -(-count // 16),
             "distribution": "sequential", "field_size": size, "seed": seed}
    with Server(context.kind(server), server_cores(1), more) as one:
        empty = one.resident_mb()
        write = load.measured(one, 0, mix="set=1", values=values, **usual)
        resident = one.resident_mb() - empty
        read = load.measured(one, 0, mix="get=1", **usual)
    return [row | {"write_s": write["seconds"], "read_s": read["seconds"],
                   "resident_b": 1e6 * resident / count, "write_ops_s": write["ops_s"],
                   "read_ops_s": read["ops_s"]}]


def name_of(server, algorithm):
    return server if algorithm == "no" else f"{server}-{algorithm}"


for _algorithm in ALGORITHMS[1:]:
    NAMES[f"kvasir-{_algorithm}"] = f"Kvasir, {_algorithm}"


class Workloads(Runs):
    """Kvasir counts once for each way of compression."""

    def servers(self, part):
        if part != "workloads":
            return super().servers(part)
        frame = self.part(part)
        known = set() if frame.empty else set(frame["server"])
        return [name for name in NAMES if name in known]


def report(lines, papers, _machine):
    runs, paper = Workloads(lines, "004"), papers["004"]
    parts = [
        by_server(runs, "workloads", "write_s", "W1 to W15: inserting, s", 3, first="workload",
                  note="Keys of 16 B, values cut from Debian's package index; 50 clients, "
                       "pipelines of 16. CP-Redis compresses from 5 KB on, as Kvasir does."),
        by_server(runs, "workloads", "read_s", "R1 to R15: looking up, s", 3, first="workload"),
        by_server(runs, "workloads", "resident_b", "Memory after W1 to W15, B per key", 0,
                  first="workload",
                  note="Of few small values this is mostly what a server takes for itself."),
        *missing_workloads(runs),
        by_server(runs, "compression", "resident_b", "Values of 10 KB: memory, B per key", 0),
        by_server(runs, "compression", "set_us", "Values of 10 KB: CPU per SET, µs", 2,
                  note="What a SET costs more than with no is the compression."),
        by_server(runs, "compression", "get_us", "Values of 10 KB: CPU per GET, µs", 2,
                  note="What a GET costs more than with no is the decompression."),
        by_server(runs, "copied", "added_mb", "Memory added by a snapshot under load, MB", 1,
                  note="The paper: " + ", ".join(f"{mb} MB" for mb in paper["copied_mb"]) + ". "
                       "With fork pages are copied that are written meanwhile; Kvasir has a "
                       "buffer of fixed size."),
        by_server(runs, "copied", "max_ms", "Longest SET during the snapshot, ms", 2),
        by_server(runs, "snapshot", "save_s", "Snapshot by number of files, s", 2,
                  note="Two threads. Peers know one file; their figure stands in each row."),
        by_server(runs, "snapshot", "start_s", "Recovery by number of files, s", 2),
        *all_plots(runs),
    ]
    return Report("Study 004: CP-Redis", paper["about"], parts, claims(runs, paper), DIFFERENCES)


def missing_workloads(runs):
    frame = runs.part("workloads")
    if frame.empty or "why" not in frame:
        return []
    lacking = frame.dropna(subset=["why"])
    reasons = [f"{NAMES[row['server']]}, {row['case']}: {row['why']}"
               for _, row in lacking.drop_duplicates(["server", "case"]).iterrows()]
    return [Text("Workloads without figures: " + "; ".join(reasons) + ".")]


def all_plots(runs):
    found = []
    for metric, title in (("write_ops_s", "Inserting"), ("read_ops_s", "Looking up")):
        frame = runs.part("workloads")
        if frame.empty:
            return [Text(f"No plots, because {runs.why_missing('workloads')}.")]
        cases = runs.cases("workloads")[5:10]
        series = {}
        for server in runs.servers("workloads"):
            rates = [runs.median("workloads", server, case, metric) for case in cases]
            series[server] = {"label": NAMES[server], "x": SIZES, "y": rates}
        series = {name: one for name, one in series.items() if None not in one["y"]}
        found.append(Plot(f"{title}: W6 to W10" if metric[0] == "w" else f"{title}: R6 to R10",
                          plots.lines(series, "bytes of a value", "operations/s", log_x=True)))
    for part, metric, title, unit in (
            ("compression", "resident_b", "Memory of values of 10 KB", "B per key"),
            ("copied", "added_mb", "Memory added by a snapshot under load", "MB"),
            ("snapshot", "save_s", "Snapshot by number of files", "s"),
            ("snapshot", "start_s", "Recovery by number of files", "s")):
        groups = [(short(case), {server: (NAMES[server], runs.median(part, server, case, metric))
                                 for server in runs.servers(part)})
                  for case in runs.cases(part)]
        if groups:
            found.append(Plot(title, plots.bars(groups, unit)))
    return found


def short(case):
    return case.replace(" values of ", " ×\n").replace(", threads 2", "")


def claims(runs, paper):
    found = []

    def kvasir(algorithm, metric):
        return runs.median("compression", "kvasir", f"package index, {algorithm}", metric)

    small = {name: ratio(kvasir(name, "resident_b"), kvasir("no", "resident_b"))
             for name in ALGORITHMS[1:]}
    lzf = small["lzf"]
    told = ", ".join(f"{name} {show(value, 2)}" for name, value in small.items())
    found.append(Claim(
        "Values of more than 5 KB kept compressed with LZF take less memory.", "less",
        judged(None if lzf is None else lzf < 0.9),
        f"Memory to that without compression, values of 10 KB of real text: {told}.", told))
    dear = {name: (kvasir(name, "set_us"), kvasir(name, "get_us")) for name in ALGORITHMS}
    told = "; ".join(f"{name} {show(cost[0])} and {show(cost[1])} µs"
                     for name, cost in dear.items() if cost[0] is not None)
    own = None if None in (*dear["no"], *dear["lzf"]) else \
        [dear["lzf"][at] - dear["no"][at] for at in (0, 1)]
    found.append(Claim(
        "Compression at SET costs more time than decompression at GET.", "more",
        judged(None if own is None else own[0] > own[1]),
        "CPU per SET and per GET of 10 KB: " + (told or runs.why_missing("compression")) + ".",
        "–" if own is None else f"LZF adds {show(own[0])} µs to a SET, {show(own[1])} to a GET"))
    found.append(copied_claim(runs, paper))
    for metric, what, study in (("save_s", "A snapshot", "save"), ("start_s", "Recovery", "start")):
        ratios = []
        for case in runs.cases("snapshot"):
            if case.endswith("files 1"):
                ratios.append(ratio(runs.median("snapshot", "kvasir", case[:-1] + "2", metric),
                                    runs.median("snapshot", "kvasir", case, metric)))
        ratios = [value for value in ratios if value is not None]
        best = min(ratios) if ratios else None
        found.append(Claim(
            f"{what} is faster with several files, written or read in parallel.", "faster",
            judged(None if best is None else best < 0.97),
            "Kvasir's time with two files to that with one, two threads each: "
            + (", ".join(show(value, 2) for value in ratios) or runs.why_missing("snapshot"))
            + ". One file is written and read by two threads here as well, so files themselves "
            "gain little.", show(best, 2)))
    return found


def copied_claim(runs, paper):
    cases = runs.cases("copied")
    told, worst, redis = [], None, None
    for case in cases:
        values = {server: runs.median("copied", server, case, "added_mb") for server in PEERS}
        told.append(f"{case}: " + ", ".join(f"{NAMES[server]} {show(value)} MB"
                                            for server, value in values.items()))
        if values["kvasir"] is not None:
            worst = max(worst or 0, values["kvasir"])
        if values["redis"] is not None:
            redis = max(redis or 0, values["redis"])
    verdict = judged(None if redis is None else redis > 10)
    return Claim("During a snapshot under load fork copies pages.",
                 ", ".join(f"{mb} MB" for mb in paper["copied_mb"]), verdict,
                 ("; ".join(told) or runs.why_missing("copied")) + ".",
                 "–" if worst is None else f"{show(worst)} MB added at most, no fork")


DIFFERENCES = [
    ("The sizes between 2 B and 20 KB (20 B, 200 B, 2 KB) are ours.",
     "Of the fifteen workloads we know the three counts and the ends of the sizes."),
    ("--quick inserts a fiftieth of the keys, 1,000 at least.", "Minutes, not hours."),
    ("2,500,000 values of 20 KB are left out where memory does not suffice.",
     "They are 50 GB; the cell says so."),
    ("Overwriting load during a snapshot comes from one thread as fast as it can.",
     "bench snapshot measures so; the study's load inserted."),
    ("CP-Redis itself is not measured.", "It is a fork of Redis 4, which we do not build."),
    ("Compression and decompression times are differences of the server's CPU per call.",
     "No clock stands inside any server then."),
]
