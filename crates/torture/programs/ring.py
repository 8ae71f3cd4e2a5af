"""redis-py and a program in C through a ring: what a program does, over one server.

The port's server says where its unix socket is; without one, or without rings, the client must
fall back.
"""

import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading

import redis

sys.path.insert(0, os.path.join(os.environ["KVASIR_ROOT"], "clients", "python"))
import kvasir_ring  # noqa: E402


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def main():
    admin = redis.Redis(port=int(sys.argv[1]))
    # Relative to where the server stands.
    path = os.path.join(admin.config_get("dir")["dir"], admin.config_get("unixsocket")["unixsocket"])
    lines = Lines()
    kvasir_ring.log.addHandler(lines)
    kvasir_ring.log.propagate = False
    client = redis.Redis(connection_pool=kvasir_ring.pool(path, decode_responses=True))
    client.ping()
    in_c(path, "ring" if is_kvasir(admin) else "socket")
    if not is_kvasir(admin):
        assert len(lines.lines) == 1 and "no ring, going on over" in lines.lines[0], lines.lines
        print("ring: not here, and the client says so")
        return
    assert lines.lines == []
    everything(admin, client)
    admin.acl_setuser("ringer", enabled=True, passwords=["+secret"], keys=["a*"],
                      commands=["+@all", "-client|ring"])
    options = {"username": "ringer", "password": "secret"}
    redis.Redis(connection_pool=kvasir_ring.pool(path, **options)).set("a", 1)
    assert "NOPERM" in lines.lines[0] or "no permissions" in lines.lines[0], lines.lines
    print("ring: redis-py speaks through memory, and falls back with a line")


def in_c(path, way):
    folder = os.path.join(os.environ["KVASIR_ROOT"], "clients", "c")
    with tempfile.TemporaryDirectory() as made:
        program = os.path.join(made, "example")
        files = [os.path.join(folder, name) for name in ("example.c", "kvasir_ring.c")]
        warnings = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
        subprocess.run(["cc", "-O2", *warnings, "-o", program, *files], check=True)
        done = subprocess.run([program, path], check=True, capture_output=True, text=True)
        assert done.stdout.startswith(way + ": "), done
        assert ("no ring, going on over the socket" in done.stderr) == (way == "socket"), done
        watched = [*warnings, "-fsanitize=address"]
        subprocess.run(["cc", "-g", *watched, "-o", program, *files], check=True)
        odd_servers(made, program)


def odd_servers(folder, program):
    """Servers that send other descriptors than they should."""
    path = os.path.join(folder, "odd")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    for count in (0, 1, 2, 3, 4):
        answer = threading.Thread(target=odd_answer, args=(listener, count))
        answer.start()
        done = subprocess.run([program, path], capture_output=True, text=True)
        assert done.returncode == 1 and "Sanitizer" not in done.stderr, (count, done)
        answer.join()
        before = len(os.listdir("/proc/self/fd"))
        answer = threading.Thread(target=odd_answer, args=(listener, count))
        answer.start()
        client = socket.socket(socket.AF_UNIX)
        client.connect(path)
        try:
            kvasir_ring.ask(client)
            raise AssertionError("it has taken %d odd descriptors" % count)
        except kvasir_ring.RingBroken:
            pass
        client.close()
        answer.join()
        # Neither left open nor closed twice, by which another's would be.
        assert len(os.listdir("/proc/self/fd")) == before, count
    listener.close()


def odd_answer(listener, count):
    """So many descriptors of a ring's memory whose size is not sealed."""
    server, _ = listener.accept()
    server.recv(100)
    memory = os.memfd_create("odd", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, 4096 + 2 * 4096)
    os.pwrite(memory, b"KVRING01" + (4096).to_bytes(4, "little"), 0)
    if count:
        socket.send_fds(server, [b":4096\r\n"], [memory] * count)
    else:
        server.sendall(b":4096\r\n")
    os.close(memory)
    server.close()


def is_kvasir(admin):
    return "kvasir" in str(admin.info("server")).lower()


def everything(admin, client):
    small = client.connection_pool.connection_kwargs["path"]
    for protocol in (2, 3):
        tiny = kvasir_ring.pool(small, ring_size=4096, protocol=protocol)
        other = redis.Redis(connection_pool=tiny)
        large = os.urandom(1_000_000)
        other.set("large", large)
        assert other.get("large") == large
        pipe = other.pipeline(transaction=False)
        for number in range(3000):
            pipe.set("k%d" % number, number)
        for number in range(3000):
            pipe.get("k%d" % number)
        assert pipe.execute()[3000:] == [b"%d" % number for number in range(3000)]
        other.close()

    with client.pipeline() as pipe:
        pipe.watch("k1")
        pipe.multi()
        pipe.incr("k1")
        assert pipe.execute() == [2]
        client.set("k1", 1)
    assert client.eval("return redis.call('GET', KEYS[1])", 1, "k1") == "1"

    waiting = threading.Thread(target=lambda: admin.rpush("list", "x"))
    threading.Timer(0.05, waiting.start).start()
    assert client.blpop("list", 10) == ("list", "x")
    try:
        client.connection_pool.get_connection().send_command("PING")
        redis.Redis(connection_pool=kvasir_ring.pool(small, socket_timeout=0.05)).blpop("none", 5)
        raise AssertionError("it has waited")
    except redis.TimeoutError:
        pass

    listener = client.pubsub()
    listener.subscribe("news")
    assert listener.get_message(timeout=10)["type"] == "subscribe"
    assert listener.get_message(timeout=0.01) is None
    admin.publish("news", "hello")
    assert listener.get_message(timeout=10)["data"] == "hello"
    listener.close()

    threads = [threading.Thread(target=many, args=(client, number)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert client.get("sum") == str(8 * 200)
    rings = [line for line in admin.client_list() if "ring" in line]
    assert rings, "no connection has a ring"

    # Closed by the server: the pool connects again, through another ring.
    own = redis.Redis(connection_pool=kvasir_ring.pool(small), retry=None)
    assert own.ping()
    admin.client_kill_filter(_id=own.client_id())
    try:
        own.ping()
    except redis.ConnectionError:
        pass  # It was under way when the other worker closed.
    assert own.ping()


def many(client, number):
    for _ in range(200):
        client.set("t%d" % number, number)
        assert client.get("t%d" % number) == str(number)
        client.incr("sum")


main()
