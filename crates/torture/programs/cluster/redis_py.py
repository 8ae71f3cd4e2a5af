"""redis-py writes to a cluster until its input ends, then reads all that was acknowledged.

python redis_py.py PORT
"""

import collections
import json
import sys
import threading
import time

import redis
from redis.cluster import RedisCluster

WRITERS = 4
PAUSE_S = 0.001
PATIENCE_S = 60

client = RedisCluster(host="127.0.0.1", port=int(sys.argv[1]), socket_timeout=20)
is_over = threading.Event()
lock = threading.Lock()
acknowledged, errors, longest = [], collections.Counter(), [0.0]


def write(writer):
    number = 0
    while not is_over.is_set():
        number += 1
        key, since = f"{writer}:{number}", time.monotonic()
        try:
            client.set(key, number)
            with lock:
                acknowledged.append((key, number))
        except redis.RedisError as error:
            with lock:
                errors[type(error).__name__] += 1
        with lock:
            longest[0] = max(longest[0], time.monotonic() - since)
        time.sleep(PAUSE_S)


def read(key):
    """A cluster may need a moment; what is not there is not there."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return client.get(key)
        except redis.RedisError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


threads = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
for thread in threads:
    thread.start()
sys.stdin.read()
is_over.set()
for thread in threads:
    thread.join()
lost = sum(read(key) != str(number).encode() for key, number in acknowledged)
print(json.dumps({
    "client": f"redis-py {redis.__version__}",
    "acknowledged": len(acknowledged),
    "errors": dict(errors),
    "lost": lost,
    "longest_ms": round(longest[0] * 1000),
}))
