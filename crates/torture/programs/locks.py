"""Locks: redis-py's Lock, python-redis-lock, and pottery's Redlock. Only one thread is ever inside,
whoever waits is woken, an expired lock is nobody's.

python locks.py PORT
"""

import sys
import threading
import time

import pottery
import redis
import redis_lock
from redis.exceptions import LockError, LockNotOwnedError

THREADS = 6
TURNS = 15
WAIT_S = 60


def exclude(name, make_lock):
    """Many threads in and out of one lock; a counter without protection of its own is right."""
    inside, entered, failures = [], [0], []

    def work():
        try:
            for _ in range(TURNS):
                with make_lock():
                    inside.append(1)
                    assert len(inside) == 1, "two are inside"
                    before = entered[0]
                    time.sleep(0.0005)
                    entered[0] = before + 1
                    inside.pop()
        except Exception as error:  # noqa: BLE001: told in the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive(), f"{name}: a thread waits for ever"
    assert not failures, f"{name}: {failures}"
    assert entered[0] == THREADS * TURNS, f"{name}: {entered[0]} entered"


def check_redis_py(client):
    exclude("redis-py", lambda: client.lock("redis-py", timeout=30, sleep=0.001))
    lock = client.lock("owned", timeout=30)
    assert lock.acquire() and lock.owned() and lock.locked()
    assert not client.lock("owned").acquire(blocking=False)
    lock.extend(30)
    assert 30_000 < client.pttl("owned") <= 60_000
    lock.reacquire()
    assert client.pttl("owned") <= 30_000
    lock.release()
    expect(LockError, lock.release)
    short = client.lock("short", timeout=0.05)
    assert short.acquire()
    while client.exists("short"):
        time.sleep(0.01)
    expect(LockNotOwnedError, short.release)
    assert client.lock("short").acquire(blocking=False)


def check_redis_lock(client):
    # It waits by BLPOP for a signal that the script of a release pushes.
    exclude("python-redis-lock", lambda: redis_lock.Lock(client, "signalled", expire=30))
    lock = redis_lock.Lock(client, "renewed", expire=3, auto_renewal=True)
    assert lock.acquire()
    time.sleep(3.5)
    assert not redis_lock.Lock(client, "renewed").acquire(blocking=False)
    lock.release()
    expect(redis_lock.NotAcquired, lock.release)
    assert redis_lock.Lock(client, "renewed").acquire(timeout=1)
    redis_lock.reset_all(client)
    assert redis_lock.Lock(client, "renewed").acquire(blocking=False)


def check_pottery(client):
    exclude("pottery", lambda: pottery.Redlock(key="redlock", masters={client}))
    lock = pottery.Redlock(key="red", masters={client}, auto_release_time=10)
    assert lock.acquire() and 0 < lock.locked() <= 10
    other = pottery.Redlock(key="red", masters={client})
    assert not other.acquire(blocking=False)
    lock.extend()
    lock.release()
    assert other.acquire(blocking=False)
    other.release()


def expect(error, call):
    try:
        call()
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


def main():
    client = redis.Redis(port=int(sys.argv[1]))
    for check in [check_redis_py, check_redis_lock, check_pottery]:
        check(client)
    print(f"locks: 3 libraries, {THREADS * TURNS} turns each, never two inside")


if __name__ == "__main__":
    main()
