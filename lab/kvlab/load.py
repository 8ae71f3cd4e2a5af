"""Load: the lab's own generator (programs/load.c), and redis-benchmark.

go-ycsb's Redis binding answers every scan with an error, and YCSB's binding for Java is not on
Maven Central; the study's mix has 20 % scans. So YCSB's operations are made by a generator of our
own, as YCSB's Java binding makes them: a record is a hash, a sorted set `_indices` holds all keys
by a hash of theirs, a scan is one ZRANGEBYSCORE and an HGETALL for each key found.
"""

import csv
import io
import json
import os
import subprocess

from kvlab.machine import HOME, ROOT, Missing, load_core, tool

GENERATOR = "kvasir-lab load.c: YCSB's operations, a thread per core, closed or open loop"
SOURCE = ROOT / "lab/programs/load.c"
STUDY_MIX = {"read": 50, "scan": 20, "update": 15, "insert": 15}
WORKLOADS = {
    "A": ({"read": 50, "update": 50}, "zipfian"),
    "B": ({"read": 95, "update": 5}, "zipfian"),
    "C": ({"read": 100}, "zipfian"),
    "D": ({"read": 95, "insert": 5}, "latest"),
    "E": ({"scan": 95, "insert": 5}, "zipfian"),
    "F": ({"read": 50, "rmw": 50}, "zipfian"),
}


def build() -> str:
    program = HOME / "load"
    if not program.is_file() or program.stat().st_mtime < SOURCE.stat().st_mtime:
        HOME.mkdir(parents=True, exist_ok=True)
        flags = ["-O2", "-Wall", "-Wextra", "-Werror"]
        new = f"{program}.{os.getpid()}"
        command = [tool("cc"), *flags, "-o", new, str(SOURCE), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Missing(f"the load generator cannot be compiled: {done.stderr[:300]}")
        os.replace(new, program)
    return str(program)


def run(servers, seconds=0.0, cores=(), timeout_s=600, **options) -> dict:
    """One run against a server or a group, a process per core; options as load.c has them."""
    cores = cores or [load_core()]
    command = [tool("taskset"), "--cpu-list", ",".join(map(str, cores)), build()]
    command += ["--processes", str(len(cores))]
    for node in servers.nodes():
        command += ["--node", node]
    if isinstance(options.get("mix"), dict):
        options["mix"] = ",".join(f"{name}={part}" for name, part in options["mix"].items())
    command += ["--seconds", str(seconds)]
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise Missing(f"the load did not end within {timeout_s} s") from None
    if done.returncode:
        raise Missing(f"the load failed: {done.stderr.strip()[:300]}")
    found = json.loads(done.stdout)
    if found["errors"]:
        count, operations = found["errors"], found["operations"]
        raise Missing(f"{count} errors in {operations} operations: {found['first_error']}")
    return found


def metrics_of(found: dict) -> dict:
    """Flat, for a line of raw runs."""
    flat = {name: found[name] for name in ("ops_s", "operations", "seconds", "unsent")}
    flat["load_busy"] = 100 * found["load_cpu_s"] / max(found["seconds"], 1e-9)
    for kind, seen in found["by_kind"].items():
        for name, value in seen.items():
            flat[f"{kind}_{name}"] = value
    return flat


def measured(servers, seconds, **options) -> dict:
    """A run with the processor time and the memory of all servers that took part."""
    before = [server.cpu_s() for server in servers.all()]
    found = run(servers, seconds, **options)
    spent = sum(server.cpu_s() - old for server, old in zip(servers.all(), before))
    flat = metrics_of(found)
    # The warm-up is part of the processor time, so it is part of the time as well.
    flat["cpu_percent"] = 100 * spent / (found["seconds"] + options.get("warmup", 0))
    flat["resident_mb"] = sum(server.resident_mb() for server in servers.all())
    return flat


def redis_benchmark(server, requests, clients, size) -> list[dict]:
    """All kinds of requests that it knows, a row each."""
    command = [tool("taskset"), "--cpu-list", str(load_core()), tool("redis-benchmark")]
    command += ["-p", str(server.port), "-n", str(requests), "-c", str(clients)]
    done = subprocess.run([*command, "-d", str(size), "--csv"], capture_output=True, text=True,
                          timeout=600)
    if done.returncode:
        raise Missing(f"redis-benchmark failed: {(done.stderr or done.stdout)[:300]}")
    return parse_benchmark(done.stdout)


def parse_benchmark(text: str) -> list[dict]:
    lines = text.splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith('"test"')]
    if not starts:
        raise Missing(f"redis-benchmark printed no table: {text[:200]}")
    rows = []
    for row in csv.DictReader(io.StringIO("\n".join(lines[starts[0]:]))):
        values = {name: float(value) for name, value in row.items() if name != "test" and value}
        rows.append({"test": row["test"], **values})
    return rows
