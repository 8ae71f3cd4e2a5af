"""The pages of metrics, read by Prometheus's own parsers; and every query of the dashboard and of
the alert rules in docs/monitoring, and of the dashboard that is common with redis_exporter, finds its
series. KVASIR_DASHBOARD names that one's file, or another's: then its own queries are looked at too."""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import redis
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as text

ROOT = os.environ["KVASIR_ROOT"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def page(port, accept):
    url = f"http://127.0.0.1:{port}/metrics"
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.read().decode(), reply.headers["Content-Type"]


def names(families):
    return {sample.name for family in families for sample in family.samples}


# What the dashboard 763 of grafana.com asks for: series, and the labels that it sums them by. What
# else it selects by, Prometheus adds.
COMMON = """
redis_blocked_clients
redis_commands_duration_seconds_total cmd
redis_commands_total cmd
redis_connected_clients
redis_db_keys db
redis_db_keys_expiring db
redis_evicted_keys_total
redis_expired_keys_total
redis_keyspace_hits_total
redis_keyspace_misses_total
redis_memory_max_bytes
redis_memory_used_bytes
redis_net_input_bytes_total
redis_net_output_bytes_total
redis_up
redis_uptime_in_seconds
"""


def check_common(families):
    """Each series is there, with its labels; returns how many."""
    labels = {}
    for family in families:
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    wanted = [line.split() for line in COMMON.split("\n") if line]
    for name, *by in wanted:
        assert name in labels, f"no series of {name}"
        assert set(by) <= labels[name], f"{name} has the labels {labels[name]}"
    return len(wanted)


def expressions(value):
    """All queries of a dashboard, wherever they stand."""
    if isinstance(value, dict):
        for name, part in value.items():
            if name in ("expr", "query") and isinstance(part, str):
                yield part
            else:
                yield from expressions(part)
    elif isinstance(value, list):
        for part in value:
            yield from expressions(part)


def queries():
    if path := os.environ.get("KVASIR_DASHBOARD"):
        with open(path) as file:
            yield from expressions(json.load(file))
    folder = os.path.join(ROOT, "docs", "monitoring")
    with open(os.path.join(folder, "dashboard.json")) as file:
        for panel in json.load(file)["panels"]:
            for target in panel.get("targets", []):
                yield target["expr"]
    with open(os.path.join(folder, "alerts.yml")) as file:
        yield from re.findall(r"^ *expr: (.*)$", file.read(), re.M)


def main(port):
    info = redis.Redis(port=port).info("server")
    ports = [str(free_port()), str(free_port())]
    options = ["--port", ports[0], "--metrics-port", ports[1], "--appendonly", "yes"]
    with tempfile.TemporaryDirectory() as directory:
        options += ["--dir", directory, "--logfile", "log", "--appendfsync", "always"]
        server = subprocess.Popen([info["executable"], *options])
        try:
            check(*ports)
        finally:
            server.kill()
            server.wait()


def check(port, of_metrics):
    client = redis.Redis(port=int(port), retry=redis.retry.Retry(redis.backoff.ConstantBackoff(0.1), 100))
    client.set("key", "value", ex=1000)
    client.get("key")
    client.hset("hash", "field", "value")
    for code in ["A\"B", "C\\D", "E\nF", "\u00fcber"]:
        try:
            client.eval("return redis.error_reply(ARGV[1] .. ' text')", 0, code)
        except redis.ResponseError:
            pass
    deadline = time.monotonic() + 60
    while True:
        plain, kind = page(of_metrics, "text/plain")
        assert kind.startswith("text/plain; version=0.0.4"), kind
        told = names(text(plain))
        if "redis_db_keys" in told or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    other, kind = page(of_metrics, "application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text"), kind
    families = list(open_metrics(other))
    common = check_common(text(plain))
    wanted = set()
    for query in queries():
        wanted |= set(re.findall(r"\b(?:redis|kvasir|process)_[a-z0-9_]+", query))
    # Of replicas and clusters only.
    absent = {"redis_master_link_up", "redis_cluster_state", "redis_connected_slave_lag_seconds"}
    absent.add("redis_master_last_io_seconds_ago")
    raw = set(re.findall(r"^([a-z0-9_]+)[ {]", plain, re.M))
    missing = wanted - raw - absent
    assert not missing, f"queries without series: {sorted(missing)}"
    count = sum(len(family.samples) for family in families)
    print(
        f"metrics: {len(families)} families, {count} samples; {len(wanted)} names are queried, "
        f"{common} by the common dashboard"
    )


main(int(sys.argv[1]))
