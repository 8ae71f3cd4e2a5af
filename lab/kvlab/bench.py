"""`cargo xtask bench`: what it measures is taken from it and never measured here a second time."""

import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

from kvlab.cells import Cell
from kvlab.machine import HOME, ROOT, Missing, bound_to_us, cores, load_core, tool


def run(context, scenario, server, *options, timeout_s=1800) -> list[dict]:
    """One run of a scenario for one server; its records, one for each case."""
    HOME.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=HOME) as folder:
        command = [tool("cargo"), "xtask", "bench", scenario, "--servers", server, "--runs", "1"]
        command += ["--kvasir", str(context.kvasir), "--out", folder]
        command += ["--server-core", str(cores()[0]), "--load-core", str(load_core())]
        command += [str(option) for option in options]
        text = finish(command, timeout_s)
        path = Path(folder) / "runs.jsonl"
        records = [json.loads(line) for line in path.read_text().splitlines()] \
            if path.is_file() else []
    if not records:
        raise Missing(f"bench {scenario} measured nothing: {last_words(text)}")
    return records


def finish(command, timeout_s) -> str:
    """What it printed; its servers end with it."""
    command = [*bound_to_us(), *command]
    process = subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=True)
    try:
        text, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise Missing(f"{' '.join(command[4:8])} did not end within {timeout_s} s") from None
    finally:
        # Also when the lab itself is interrupted.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode:
        raise Missing(f"{' '.join(command[4:8])} failed: {last_words(text)}")
    return text


def last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-4:])[-400:] or "it printed nothing"


def metrics(records) -> list[dict]:
    """As cells leave them: case, server, figures."""
    return [
        {"table": row["table"], "case": row["case"], "server": row["server"], **row["metrics"]}
        for row in records
    ]


def cell(study, part, scenario, server, run_number, expected_s, *options):
    """A cell that is a run of a scenario."""
    def measure(context):
        context.kind(server)
        return metrics(run(context, scenario, server, *options))

    command = " ".join(["cargo xtask bench", scenario, *map(str, options)])
    only = str(options[options.index("--only") + 1]) if "--only" in options else "all"
    name = only.replace("/", "-").replace(" ", "-")
    return Cell(f"{study}/{part}/{server}/{name}/{run_number}", measure, expected_s,
                {"command": command})
