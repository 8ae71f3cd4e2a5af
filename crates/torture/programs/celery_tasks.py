"""Celery with the server as broker and as result store: plain tasks, retries, ETA, chains, groups,
chords, revoked tasks, priorities and two queues. Two worker processes serve them.

python celery_tasks.py PORT
"""

import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone

import celery
import redis
from celery.result import AsyncResult

PORT = int(os.environ.get("PROGRAM_PORT") or sys.argv[1])
PLAIN_TASKS = 300
WAIT_S = 60

app = celery.Celery("celery_tasks")
app.conf.update(
    broker_url=f"redis://127.0.0.1:{PORT}/0",
    result_backend=f"redis://127.0.0.1:{PORT}/1",
    broker_connection_retry_on_startup=True,
    broker_transport_options={"queue_order_strategy": "priority"},
    worker_prefetch_multiplier=4,
    task_acks_late=True,
    task_track_started=True,
    result_chord_join_timeout=WAIT_S,
)
marks = redis.Redis(port=PORT, db=2)


@app.task(name="add")
def add(left, right):
    return left + right


@app.task(name="total")
def total(numbers):
    return sum(numbers)


@app.task(name="once")
def once(index):
    """Counts its runs where the test can see them."""
    marks.hincrby("runs", index, 1)
    return index


@app.task(name="flaky", bind=True, max_retries=5)
def flaky(self, key, failures):
    if marks.incr(key) <= failures:
        raise self.retry(countdown=0.05)
    return self.request.retries


@app.task(name="broken")
def broken():
    raise ValueError("as it should")


@app.task(name="now")
def now():
    return time.time()


def start_worker(name):
    command = [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker"]
    options = ["--concurrency", "2", "--loglevel", "WARNING", "-n", name, "-Q", "celery,other"]
    here = os.path.dirname(os.path.abspath(__file__))
    environment = {**os.environ, "PROGRAM_PORT": str(PORT), "PYTHONPATH": here}
    return subprocess.Popen(command + options, env=environment, stdin=subprocess.DEVNULL)


def wait_for_workers(count):
    deadline = time.monotonic() + WAIT_S
    while len(app.control.ping(timeout=1)) < count:
        assert time.monotonic() < deadline, "the workers do not answer"


def check_plain():
    results = [once.delay(index) for index in range(PLAIN_TASKS)]
    assert [result.get(timeout=WAIT_S) for result in results] == list(range(PLAIN_TASKS))
    runs = marks.hgetall("runs")
    assert len(runs) == PLAIN_TASKS and set(runs.values()) == {b"1"}, runs
    assert add.apply_async((1, 2), queue="other").get(timeout=WAIT_S) == 3
    other = AsyncResult(results[0].id, app=app)
    assert other.successful() and other.result == 0
    other.forget()
    assert AsyncResult(results[0].id, app=app).state == "PENDING"


def check_failures():
    results = [flaky.delay(f"flaky{index}", 3) for index in range(20)]
    assert [result.get(timeout=WAIT_S) for result in results] == [3] * 20
    failed = broken.delay()
    try:
        failed.get(timeout=WAIT_S)
    except ValueError as error:
        assert str(error) == "as it should"
    assert failed.failed() and "ValueError" in failed.traceback


def check_canvas():
    chain = celery.chain(add.s(1, 1), *(add.s(index) for index in range(10)))
    assert chain().get(timeout=WAIT_S) == 2 + sum(range(10))
    group = celery.group(add.s(index, index) for index in range(50))()
    assert group.get(timeout=WAIT_S) == [2 * index for index in range(50)]
    chords = [celery.chord(add.s(n, 1) for n in range(20))(total.s()) for _ in range(10)]
    assert [chord.get(timeout=WAIT_S) for chord in chords] == [sum(range(1, 21))] * 10
    nested = celery.chain(celery.group(add.s(n, n) for n in range(5)), total.s(), add.s(100))
    assert nested().get(timeout=WAIT_S) == 120


def check_times():
    eta = datetime.now(timezone.utc) + timedelta(seconds=1)
    due = now.apply_async(eta=eta)
    counted = now.apply_async(countdown=1)
    assert due.get(timeout=WAIT_S) >= eta.timestamp()
    assert counted.get(timeout=WAIT_S) >= eta.timestamp() - 1
    late = once.apply_async((-1,), countdown=1.5, expires=0.5)
    revoked = once.apply_async((-2,), countdown=1.5)
    revoked.revoke()
    deadline = time.monotonic() + WAIT_S
    while {late.state, revoked.state} != {"REVOKED"}:
        assert time.monotonic() < deadline, (late.state, revoked.state)
        time.sleep(0.05)
    assert not marks.hmget("runs", -1, -2)[0]


def check_control():
    stats = app.control.inspect(timeout=5).stats()
    assert len(stats) == 2, stats
    assert app.control.purge() == 0


def main():
    workers = [start_worker(name) for name in ["one@local", "two@local"]]
    try:
        wait_for_workers(len(workers))
        for check in [check_plain, check_failures, check_canvas, check_times, check_control]:
            check()
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        for worker in workers:
            worker.wait(WAIT_S)
    print(f"celery: {PLAIN_TASKS} plain tasks, each run once; retries, ETA, chains, chords")


if __name__ == "__main__":
    main()
