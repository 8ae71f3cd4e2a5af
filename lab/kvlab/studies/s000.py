"""Study 000: a primary compresses the output buffer of a replica that waits for its snapshot."""

from kvlab import bench, plots
from kvlab.studies.common import (
    DIFFERS, HOLDS, NAMES, PEERS, UNMEASURED, UNTESTED, Claim, Plot, Report, Runs, Text, by_server,
    judged, show,
)

ALGORITHMS = ["no", "lzf", "lz4", "zstd"]
CORPORA = ["package index", "one character", "random"]
CALLS = ["SET", "MSET", "HSET"]
PART = "replication"


def cells(quick, seed):
    """Peers have no compression, and leave out what they are asked of it."""
    size = ["--keys", 200_000 if quick else 300_000]
    found = []
    # The names of MSET and HSET have SET in theirs: one cell measures all three calls. Once: what
    # becomes of the same bytes does not vary, and each row is of tens of thousands of requests.
    for corpus in CORPORA[:2] if quick else CORPORA:
        for server in PEERS:
            ways = len(CALLS) * (len(ALGORITHMS) if server == "kvasir" else 2)
            found.append(bench.cell("000", PART, "replication", server, 1,
                                    ways * (5 if quick else 8), "--only",
                                    f"SET, {corpus}", *size))
    return found


def report(lines, papers, _machine):
    runs, paper = Runs(lines, "000"), papers["000"]
    cases = [case for call in CALLS for corpus in CORPORA for case in
             (f"{call}, {corpus}, {algorithm}" for algorithm in ALGORITHMS)]
    ratios = {f"SET, {corpus}, {algorithm}": value
              for corpus, values in paper["ratio"].items() for algorithm, value in values.items()}
    parts = [
        by_server(runs, PART, "ratio", "Times smaller", 2, cases=cases, paper=ratios,
                  note="Bytes of the log to bytes of its compressed blocks. The paper's figures: "
                       "records of 753 B, one repeated character, random bytes."),
        by_server(runs, PART, "ops_s", "Requests per second while the replica waits", 0,
                  cases=cases, note="An MSET of 10 values is one request."),
        by_server(runs, PART, "buffer_mb", "What the primary keeps for the replica, MB", 1,
                  cases=cases),
        by_server(runs, PART, "sync_s", "Synchronized after, s", 1, cases=cases),
        by_server(runs, PART, "faults", "Page faults per request", 3, cases=cases),
        by_server(runs, PART, "cpu_us", "Primary's CPU per request, µs", 2, cases=cases),
        *plot(runs),
    ]
    return Report("Study 000: compressed output buffer", paper["about"], parts,
                  claims(runs, paper), DIFFERENCES)


def plot(runs):
    groups = []
    for algorithm in ALGORITHMS:
        case = f"SET, package index, {algorithm}"
        values = {server: (NAMES[server], runs.median(PART, server, case, "buffer_mb"))
                  for server in runs.servers(PART)}
        values = {server: pair for server, pair in values.items()
                  if pair[1] is not None or algorithm == "no" or server == "kvasir"}
        if values:
            groups.append((algorithm, values))
    if not groups:
        return [Text(f"No plot, because {runs.why_missing(PART)}.")]
    return [Plot("What the primary keeps for the replica", plots.bars(groups, "MB"),
                 "SET of records of the package index. Peers have no compression.")]


def claims(runs, paper):
    found = []

    def kvasir(case, metric):
        return runs.median(PART, "kvasir", case, metric)

    for corpus, values in paper["ratio"].items():
        own = {name: kvasir(f"SET, {corpus}, {name}", "ratio") for name in values}
        known = {name: value for name, value in own.items() if value is not None}
        told = ", ".join(f"{name} {show(value, 2)}" for name, value in known.items())
        is_so = None if len(known) < len(values) else \
            all(own[name] >= 0.95 * values[name] for name in values)
        paper_told = ", ".join(f"{name} {value}" for name, value in values.items())
        found.append(Claim(
            f"On {paper['names'][corpus]} the buffer becomes smaller by this factor.", paper_told,
            judged(is_so), f"Here: {told or runs.why_missing(PART)}. Held to hold from 0.95 of "
            "the paper's factor on. Our records are of Debian's package index, cut to 1,000 B.",
            told or "–"))
    for call, lost in paper["lost_percent"].items():
        plain = kvasir(f"{call}, package index, no", "ops_s")
        packed = kvasir(f"{call}, package index, zstd", "ops_s")
        fell = None if plain is None or packed is None else 100 * (1 - packed / plain)
        found.append(Claim(
            f"Requests per second of {call} fall by zstd, since the main thread compresses.",
            f"−{lost} %",
            UNMEASURED if fell is None else HOLDS if fell >= 0.5 * lost else DIFFERS,
            "Held to hold if at least half as much is lost. Kvasir compresses on a thread of the "
            f"background: {show(plain)}/s without, {show(packed)}/s with.",
            "–" if fell is None else f"−{fell:.0f} %"))
    plain, packed = (kvasir(f"SET, package index, {name}", "faults") for name in ("no", "zstd"))
    fell = None if not plain or packed is None else 100 * (1 - packed / plain)
    found.append(Claim("Page faults fall.", f"−{paper['faults_percent']} %",
                       judged(None if fell is None else fell > 10),
                       f"Per request: {show(plain)} without, {show(packed)} with zstd.",
                       "–" if fell is None else f"−{fell:.1f} %"))
    found.append(Claim(
        "A buffer of 250 MB carries 100 Mbit/s where 850 MB were needed.", "250 of 850 MB",
        UNTESTED, "The largest rate without overflow for each size of a buffer is not measured by "
        "bench replication; the buffer's size at one rate is, see above.",
        "–" if not packed else f"{show(kvasir('SET, package index, zstd', 'buffer_mb'))} MB of "
        f"{show(kvasir('SET, package index, no', 'buffer_mb'))} MB"))
    return found


DIFFERENCES = [
    ("The link is a relay of 100 Mbit/s inside the process that measures.",
     "Network namespaces with a token bucket need rights that not everybody has."),
    ("Debian's package index stands for the study's records.",
     "Theirs are not public. 1,000 B a value; theirs had 753 B with keys of 44 B."),
    ("Kvasir compresses sealed blocks of its log, once for all replicas, off the hot path.",
     "That is the design that the study's loss of throughput led to."),
    ("Redis and Valkey are measured without compression only.", "They have none."),
    ("48,000 requests are written, 32,000 with --quick, instead of the bench's 1,600,000.",
     "A buffer is smaller then, and part of it is not yet sealed, so ratios are lower. A run of "
     "the bench's own size takes a minute for each row: `cargo xtask bench replication`."),
]
