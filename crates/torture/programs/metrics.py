"""The pages of metrics, read by Prometheus's own parsers; and every query of the dashboard and of
the alert rules in docs/monitoring finds its series."""

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


def queries():
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
    wanted = set()
    for query in queries():
        wanted |= set(re.findall(r"\b(?:redis|kvasir|process)_[a-z0-9_]+", query))
    # Of replicas and clusters only.
    absent = {"redis_master_link_up", "redis_cluster_state", "redis_connected_slave_lag_seconds"}
    raw = set(re.findall(r"^([a-z0-9_]+)[ {]", plain, re.M))
    missing = wanted - raw - absent
    assert not missing, f"queries without series: {sorted(missing)}"
    count = sum(len(family.samples) for family in families)
    print(f"metrics: {len(families)} families, {count} samples; {len(wanted)} names are queried")


main(int(sys.argv[1]))
