"""Servers that live as long as their guard: one, one with a replica, or a cluster.

Each has a folder of its own below `target/lab`, a free port and the cores that it may use. What
it printed is part of the error when it does not start.
"""

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psutil

from kvlab.machine import HOME, Kind, Missing, bound_to_us, tool

START_S = 30
SLOTS = 16384


def free_port() -> int:
    """One whose bus port, 10,000 further, is free as well."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            port = port if port < 50_000 else port - 20_000
            try:
                other.bind(("127.0.0.1", port + 10_000))
                with socket.socket() as again:
                    again.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class Client:
    """As much of RESP as preparing a server needs."""

    def __init__(self, port: int):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def call(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(w), w) for w in words]
        self.socket.sendall(b"".join(parts))
        return self.reply()

    def reply(self):
        line = self.file.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise ValueError(rest.decode())
        if kind == b"$":
            data = self.file.read(int(rest) + 2)[:-2] if int(rest) >= 0 else None
            return data.decode(errors="replace") if data is not None else None
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        if not line:
            raise ConnectionError("the server closed the connection")
        return int(rest) if kind == b":" else rest.decode()

    def info(self) -> dict:
        lines = self.call("INFO", "all").splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)


class Server:
    def __init__(self, kind: Kind, cores, options=(), workers=1):
        self.kind, self.port = kind, free_port()
        HOME.mkdir(parents=True, exist_ok=True)
        self.dir = Path(tempfile.mkdtemp(prefix=f"{kind.name}-", dir=HOME))
        self.log = self.dir / "log"
        cores = ",".join(str(core) for core in cores)
        command = [*bound_to_us(), tool("taskset"), "--cpu-list", cores, str(kind.program)]
        command += [str(word) for word in self.words(workers, options)]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, cwd=self.dir, stdout=log, stderr=log)
        try:
            self.wait_until_it_answers()
        except BaseException:
            self.close()
            raise

    def words(self, workers, options):
        if self.kind.name == "memcached":
            user = ["-u", "root"]
            return ["-l", "127.0.0.1", "-p", self.port, "-t", workers, "-m", 1024, *user, *options]
        usual = ["--port", self.port, "--dir", self.dir, "--save", "", "--io-threads", workers]
        return [*usual, "--bind", "127.0.0.1", *options]

    def wait_until_it_answers(self):
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                if self.kind.name == "memcached":
                    socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                    return
                with Client(self.port) as client:
                    client.call("PING")
                    return
            except (OSError, ValueError):
                time.sleep(0.02)
        lines = self.log.read_text(errors="replace").strip().splitlines()[-3:]
        said = " / ".join(lines) or "it printed nothing"
        raise Missing(f"{self.kind.label} does not start: {said}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    def client(self) -> Client:
        return Client(self.port)

    def cpu_s(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def kernel_s(self) -> float:
        return psutil.Process(self.process.pid).cpu_times().system

    def resident_mb(self) -> float:
        return psutil.Process(self.process.pid).memory_info().rss / 1e6

    def nodes(self) -> list[str]:
        """As the load generator takes them."""
        return [str(self.port)]

    def all(self) -> list:
        return [self]


class Group:
    """Servers that belong together: a cluster of some primaries, or one; replicas or none."""

    def __init__(self, kind, cores, primaries, has_replicas, options=(), workers=1):
        self.primaries, self.replicas = [], []
        more = list(options)
        if primaries > 1:
            more += ["--cluster-enabled", "yes", "--cluster-node-timeout", "5000"]
        try:
            for _ in range(primaries):
                self.primaries.append(Server(kind, cores, more, workers))
            for _ in range(primaries if has_replicas else 0):
                self.replicas.append(Server(kind, cores, more, workers))
            if primaries > 1:
                self.join()
            elif has_replicas:
                with self.replicas[0].client() as client:
                    client.call("REPLICAOF", "127.0.0.1", self.primaries[0].port)
            if has_replicas:
                self.wait_for(self.are_followed, "replicas follow")
        except BaseException:
            self.close()
            raise

    def join(self):
        count = len(self.primaries)
        bounds = [SLOTS * part // count for part in range(count + 1)]
        self.ranges = [(first, last - 1) for first, last in zip(bounds, bounds[1:])]
        for server, (first, last) in zip(self.primaries, self.ranges):
            with server.client() as client:
                client.call("CLUSTER", "ADDSLOTSRANGE", first, last)
                for other in self.all():
                    if other is not server:
                        client.call("CLUSTER", "MEET", "127.0.0.1", other.port)
        self.wait_for(self.know_each_other, "all nodes know each other")
        for server, replica in zip(self.primaries, self.replicas):
            with server.client() as client, replica.client() as other:
                other.call("CLUSTER", "REPLICATE", client.call("CLUSTER", "MYID"))
        self.wait_for(self.is_ok, "cluster_state is ok")

    def know_each_other(self) -> bool:
        return all(self.cluster_info(server, "cluster_known_nodes") == str(len(self.all()))
                   for server in self.all())

    def is_ok(self) -> bool:
        return all(self.cluster_info(server, "cluster_state") == "ok" for server in self.all())

    @staticmethod
    def cluster_info(server, name):
        with server.client() as client:
            lines = client.call("CLUSTER", "INFO").splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line).get(name)

    def are_followed(self) -> bool:
        for replica in self.replicas:
            with replica.client() as client:
                if client.info().get("master_link_status", "").strip() != "up":
                    return False
        return True

    def wait_for(self, is_so, what):
        end = time.monotonic() + START_S
        while not is_so():
            if time.monotonic() > end:
                raise Missing(f"waited {START_S} s in vain until {what}")
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for server in self.all():
            server.close()

    def all(self) -> list:
        return self.primaries + self.replicas

    def nodes(self) -> list[str]:
        if len(self.primaries) == 1:
            return self.primaries[0].nodes()
        pairs = zip(self.primaries, self.ranges)
        return [f"{server.port}:{first}-{last}" for server, (first, last) in pairs]
