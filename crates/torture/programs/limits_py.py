"""limits (PyPI): every strategy of the library lets through exactly as many as its limit says,
with many threads asking at once.

python limits_py.py PORT
"""

import sys
import threading

import limits
from limits.storage import storage_from_string
from limits.strategies import (
    FixedWindowRateLimiter,
    MovingWindowRateLimiter,
    SlidingWindowCounterRateLimiter,
)

STRATEGIES = [FixedWindowRateLimiter, MovingWindowRateLimiter, SlidingWindowCounterRateLimiter]
THREADS = 8
CALLS = 50
LIMIT = 100


def ask(limiter, item, key):
    """Calls from all threads at once; how many were let through."""
    passed = []

    def work():
        passed.append(sum(limiter.hit(item, key) for _ in range(CALLS)))

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(passed) == THREADS, "a thread failed"
    return sum(passed)


def check(port, strategy):
    limiter = strategy(storage_from_string(f"redis://127.0.0.1:{port}"))
    item = limits.RateLimitItemPerHour(LIMIT)
    key = strategy.__name__
    assert ask(limiter, item, key) == LIMIT, key
    assert not limiter.test(item, key)
    stats = limiter.get_window_stats(item, key)
    assert stats.remaining == 0, stats
    limiter.clear(item, key)
    assert limiter.test(item, key)
    assert limiter.hit(item, key, cost=LIMIT)
    assert not limiter.hit(item, key)


def main():
    port = int(sys.argv[1])
    for strategy in STRATEGIES:
        check(port, strategy)
    storage = storage_from_string(f"redis://127.0.0.1:{port}")
    assert storage.check()
    storage.reset()
    print(f"limits: {len(STRATEGIES)} strategies let through what they say")


if __name__ == "__main__":
    main()
