#!/usr/bin/env python3
"""Loads every stanza of Debian's package index into a server, reads all of it back, compares.

Each stanza is stored twice: as a string (`pkg:NAME:VERSION` -> the stanza's text) and as a hash
(`pkgh:NAME:VERSION` -> one field per header). Prints the number of records, the time to load and
to read, and the memory that the server uses.

    load_packages.py --port 6379
    load_packages.py --compare --server redis=/usr/bin/redis-server --server kvasir=PATH

With --port the keys are removed again unless --keep is given. Needs redis-py, and apt's package
lists (`apt-get update`).
"""

import argparse
import dataclasses
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import redis

# Commands per round trip.
BATCH = 500


def read_index():
    """Returns the stanzas of the package index by `NAME:VERSION`, as bytes.

    The same version may be listed by more than one archive; the last one stays.
    """
    text = subprocess.run(["apt-cache", "dumpavail"], check=True, capture_output=True).stdout
    stanzas = {}
    for stanza in text.split(b"\n\n"):
        fields = parse_stanza(stanza)
        if b"Package" in fields:
            name = fields[b"Package"] + b":" + fields.get(b"Version", b"")
            stanzas[name] = (stanza, fields)
    return stanzas


def parse_stanza(stanza):
    """Returns the headers of a stanza; lines that start with a space continue the one before."""
    fields = {}
    name = None
    for line in stanza.split(b"\n"):
        if line[:1] in (b" ", b"\t") and name is not None:
            fields[name] += b"\n" + line
        elif b":" in line:
            name, value = line.split(b":", 1)
            fields[name] = value.strip()
    return fields


def batches(items):
    items = list(items)
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))


def load(client, stanzas):
    """Stores every stanza as a string and as a hash."""
    for batch in batches(stanzas.items()):
        pipeline = client.pipeline(transaction=False)
        for name, (stanza, fields) in batch:
            pipeline.set(b"pkg:" + name, stanza)
            pipeline.hset(b"pkgh:" + name, mapping=fields)
        pipeline.execute()


def read_back(client, stanzas):
    """Returns what the server holds, in the shape of the index."""
    found = {}
    for batch in batches(stanzas):
        pipeline = client.pipeline(transaction=False)
        for name in batch:
            pipeline.get(b"pkg:" + name)
            pipeline.hgetall(b"pkgh:" + name)
        replies = pipeline.execute()
        for name, stanza, fields in zip(batch, replies[::2], replies[1::2]):
            found[name] = (stanza, fields)
    return found


def remove(client, stanzas):
    for batch in batches(stanzas):
        client.delete(*(prefix + name for name in batch for prefix in (b"pkg:", b"pkgh:")))


def resident_bytes(client):
    """The server's resident memory: from /proc if it runs here, else what INFO reports."""
    info = client.info()
    try:
        status = pathlib.Path(f"/proc/{info['process_id']}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024
    except (OSError, KeyError, StopIteration):
        return info.get("used_memory_rss", 0)


@dataclasses.dataclass
class Result:
    """What one server did with the index."""

    load_s: float
    read_s: float
    resident: int
    wrong: int


def measure(client, stanzas):
    empty = resident_bytes(client)
    start = time.monotonic()
    load(client, stanzas)
    loaded = time.monotonic()
    resident = resident_bytes(client) - empty
    reading = time.monotonic()
    found = read_back(client, stanzas)
    read = time.monotonic()
    wrong = sum(found[name] != stanza for name, stanza in stanzas.items())
    return Result(loaded - start, read - reading, resident, wrong)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def executable(program):
    """Finds a program on the PATH or from here, before the server's folder becomes its own."""
    found = shutil.which(program)
    if found is None:
        sys.exit(f"{program} is not a program")
    return os.path.abspath(found)


def measure_program(program, stanzas):
    """Starts a server in an empty directory, measures it and stops it."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [executable(program), "--port", str(port), "--save", ""]
        server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
        try:
            client = redis.Redis(port=port)
            wait_until_ready(client, server)
            return measure(client, stanzas)
        finally:
            server.kill()
            server.wait()


def wait_until_ready(client, server):
    deadline = time.monotonic() + 20
    while True:
        try:
            client.ping()
            return
        except redis.exceptions.ConnectionError:
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{server.args[0]} does not serve")
            time.sleep(0.02)


def print_results(results):
    """One row per server, each with its ratio to the first."""
    first = next(iter(results.values()))
    print(f"{'server':<10} {'load s':>8} {'ratio':>6} {'read s':>8} {'ratio':>6}"
          f" {'memory MB':>10} {'ratio':>6} {'equal':>6}")
    for name, result in results.items():
        load_ratio = result.load_s / first.load_s
        read_ratio = result.read_s / first.read_s
        memory_ratio = result.resident / first.resident if first.resident else 0
        print(f"{name:<10} {result.load_s:>8.2f} {load_ratio:>6.2f} {result.read_s:>8.2f}"
              f" {read_ratio:>6.2f} {result.resident / 1e6:>10.1f} {memory_ratio:>6.2f}"
              f" {'no' if result.wrong else 'yes':>6}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=6379, help="of a running server")
    parser.add_argument("--keep", action="store_true", help="leave the keys in the server")
    parser.add_argument("--compare", action="store_true", help="start and compare --server's")
    parser.add_argument("--server", action="append", metavar="NAME=PROGRAM",
                        help="a server to compare; the first is what ratios are to")
    options = parser.parse_args()

    stanzas = read_index()
    if not stanzas:
        sys.exit("apt knows no packages; run apt-get update")
    size = sum(len(stanza) for stanza, _ in stanzas.values())
    print(f"{len(stanzas)} stanzas, {size / 1e6:.1f} MB, each as a string and as a hash")

    if options.compare:
        servers = options.server or ["redis=redis-server", "kvasir=target/release/kvasir-server"]
        programs = dict(server.split("=", 1) for server in servers)
        results = {name: measure_program(path, stanzas) for name, path in programs.items()}
    else:
        client = redis.Redis(port=options.port)
        results = {f":{options.port}": measure(client, stanzas)}
        if not options.keep:
            remove(client, stanzas)
    print_results(results)
    wrong = sum(result.wrong for result in results.values())
    if wrong:
        sys.exit(f"{wrong} records came back different")


if __name__ == "__main__":
    main()
