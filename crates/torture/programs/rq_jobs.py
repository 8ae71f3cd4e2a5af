"""RQ with several workers: jobs, results, dependencies, retries, scheduled and repeated jobs,
priorities of queues, failures and cancelled jobs.

python rq_jobs.py PORT
"""

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta

import redis
from rq import Queue, Repeat, Retry, Worker
from rq.job import Job, JobStatus
from rq.registry import FailedJobRegistry, FinishedJobRegistry, ScheduledJobRegistry

PORT = int(os.environ.get("PROGRAM_PORT") or sys.argv[1])
PLAIN_JOBS = 200
WORKERS = 3
WAIT_S = 90

connection = redis.Redis(port=PORT)


def once(index):
    """Counts its runs where the test can see them."""
    connection.hincrby("runs", index, 1)
    return index * 2


def flaky(key, failures):
    if connection.incr(key) <= failures:
        raise RuntimeError("at first")
    return "at last"


def broken():
    raise ValueError("as it should")


def tick():
    return connection.rpush("ticks", time.time())


def start_worker(name):
    here = os.path.dirname(os.path.abspath(__file__))
    environment = {**os.environ, "PROGRAM_PORT": str(PORT), "PYTHONPATH": here}
    command = [os.path.join(os.path.dirname(sys.executable), "rq"), "worker", "high", "low"]
    url = f"redis://127.0.0.1:{PORT}/0"
    options = ["--url", url, "--name", name, "--with-scheduler", "--quiet"]
    # A simple worker does not fork for each job: hundreds of jobs in seconds.
    options += ["--worker-class", "rq.worker.SimpleWorker"]
    return subprocess.Popen(command + options, env=environment, stdin=subprocess.DEVNULL)


def until(what, condition):
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.05)


def is_finished(job):
    return job.get_status() == JobStatus.FINISHED


def check_plain(high, low):
    jobs = [low.enqueue("rq_jobs.once", index) for index in range(PLAIN_JOBS)]
    jobs += high.enqueue_many(
        [Queue.prepare_data("rq_jobs.once", (PLAIN_JOBS + n,)) for n in range(50)]
    )
    until("all jobs are finished", lambda: all(is_finished(job) for job in jobs))
    assert [job.return_value() for job in jobs] == [2 * n for n in range(len(jobs))]
    runs = connection.hgetall("runs")
    assert len(runs) == len(jobs) and set(runs.values()) == {b"1"}, runs
    assert len(low) == len(high) == 0
    assert jobs[0].id in FinishedJobRegistry(queue=low)
    jobs[0].delete()
    assert not Job.exists(jobs[0].id, connection=connection)


def check_dependencies(low):
    first = [low.enqueue("rq_jobs.once", 10_000 + n) for n in range(5)]
    last = low.enqueue("rq_jobs.once", 10_005, depends_on=first)
    until("the last job is finished", lambda: is_finished(last))
    assert all(is_finished(job) for job in first)


def check_failures(low):
    retried = low.enqueue("rq_jobs.flaky", "flaky", 2, retry=Retry(max=3))
    until("the retried job is finished", lambda: is_finished(retried))
    assert retried.return_value() == "at last" and connection.get("flaky") == b"3"
    failed = low.enqueue("rq_jobs.broken")
    registry = FailedJobRegistry(queue=low)
    until("the broken job has failed", lambda: failed.id in registry)
    assert "as it should" in failed.latest_result().exc_string
    registry.requeue(failed)
    until("it has failed again", lambda: failed.id in registry)


def check_schedule(low):
    # It schedules to the second, rounded down.
    asked = time.time()
    soon = low.enqueue_in(timedelta(seconds=2), "rq_jobs.tick")
    later = low.enqueue_in(timedelta(hours=1), "rq_jobs.tick")
    assert later.id in ScheduledJobRegistry(queue=low)
    until("the scheduled job is finished", lambda: is_finished(soon))
    assert float(connection.lindex("ticks", 0)) >= asked + 1
    later.cancel()
    assert later.get_status() == JobStatus.CANCELED
    connection.delete("ticks")
    low.enqueue("rq_jobs.tick", repeat=Repeat(times=2, interval=1))
    until("the repeated job has run three times", lambda: connection.llen("ticks") == 3)


def main():
    workers = [start_worker(f"worker-{index}") for index in range(WORKERS)]
    high, low = Queue("high", connection=connection), Queue("low", connection=connection)
    try:
        until("the workers are there", lambda: Worker.count(connection=connection) == WORKERS)
        check_plain(high, low)
        check_dependencies(low)
        check_failures(low)
        check_schedule(low)
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        for worker in workers:
            worker.wait(WAIT_S)
    assert Worker.count(connection=connection) == 0
    print(f"rq: {PLAIN_JOBS + 50} jobs on {WORKERS} workers, each run once; retries, schedules")


if __name__ == "__main__":
    main()
