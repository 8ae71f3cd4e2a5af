"""The load generator against a real redis-server: its calls, its rates, its latencies."""

import threading
import time

import pytest

from kvlab import load
from kvlab.machine import Missing, cores, find_kinds, server_cores
from kvlab.servers import Group, Server


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    kinds = find_kinds(tmp_path_factory.mktemp("none") / "kvasir")
    if "redis" not in kinds:
        pytest.skip("redis-server is not here; `cargo xtask ci --only oracle` installs it")
    with Server(kinds["redis"], server_cores(1)) as one:
        yield one


@pytest.fixture
def client(redis):
    with redis.client() as client:
        client.call("FLUSHALL")
        client.call("CONFIG", "RESETSTAT")
        yield client


def calls_of(client) -> dict:
    lines = client.call("INFO", "commandstats").splitlines()
    rows = [line.split(":") for line in lines if line.startswith("cmdstat_")]
    return {name[8:]: int(values.split(",")[0].split("=")[1]) for name, values in rows}


def test_records_are_hashes_and_stand_in_the_index(redis, client):
    found = load.run(redis, clients=4, records=500, load=1, fields=10, field_size=100)
    assert found["by_kind"]["insert"]["count"] == 500
    assert client.call("DBSIZE") == 501
    assert client.call("ZCARD", "_indices") == 500
    name = client.call("ZRANGE", "_indices", 0, 0)[0]
    assert client.call("HLEN", name) == 10
    assert len(client.call("HGET", name, "field7")) == 100


def test_a_mix_makes_the_calls_that_ycsb_makes(redis, client):
    load.run(redis, clients=4, records=500, load=1)
    client.call("CONFIG", "RESETSTAT")
    found = load.run(redis, clients=4, records=500, mix=load.STUDY_MIX, requests=1000, seed=3)
    kinds = {kind: seen["count"] for kind, seen in found["by_kind"].items()}
    assert sum(kinds.values()) == found["operations"] == 1000
    for kind, percent in load.STUDY_MIX.items():
        assert abs(kinds[kind] - 10 * percent) < 80, kinds
    calls = calls_of(client)
    assert calls["zrangebyscore"] == kinds["scan"]
    assert calls["zadd"] == kinds["insert"]
    assert calls["hset"] == kinds["insert"] + kinds["update"]
    assert calls["hgetall"] > kinds["read"] + 10 * kinds["scan"]


def test_one_seed_is_one_load(redis, client):
    counts = []
    for _ in range(2):
        client.call("FLUSHALL")
        load.run(redis, clients=1, records=200, load=1, seed=9)
        found = load.run(redis, clients=1, records=200, mix=load.STUDY_MIX, requests=300, seed=9)
        counts.append({kind: seen["count"] for kind, seen in found["by_kind"].items()})
    assert counts[0] == counts[1]


def test_pipelines_count_every_call(redis, client):
    found = load.run(redis, clients=2, records=100, mix="set=1", pipeline=15, requests=20)
    assert found["operations"] == 300
    assert calls_of(client)["set"] == 300


def test_errors_are_no_figures(redis, client):
    client.call("SET", "key:000000000000", "x")
    client.call("CONFIG", "SET", "maxmemory", 1)
    try:
        with pytest.raises(Missing, match="OOM command not allowed"):
            load.run(redis, clients=1, records=1, mix="set=1", requests=5)
    finally:
        client.call("CONFIG", "SET", "maxmemory", 0)


def paused(client, seconds, **options):
    """A run during which the server rests for 300 ms."""
    pause = threading.Timer(0.15, lambda: client.call("CLIENT", "PAUSE", 300, "ALL"))
    pause.start()
    found = load.run(client.server, seconds, records=100, mix="get=1", **options)
    pause.join()
    return found["by_kind"]["get"]


def test_an_open_loop_does_not_forgive_a_pause(redis, client):
    client.server = redis
    # Of 600 ms the server rests half: who was due meanwhile has waited.
    patient = paused(client, 0.6, clients=1, rate=2000)
    assert patient["p95_us"] > 100_000
    time.sleep(0.05)
    client.call("CLIENT", "UNPAUSE")
    # A closed loop of one client meets the pause once.
    forgiving = paused(client, 0.6, clients=1)
    assert forgiving["p95_us"] < 100_000 < forgiving["max_us"]


def test_an_open_loop_keeps_its_rate(redis, client):
    found = load.run(redis, 0.5, clients=8, records=100, mix="get=1", rate=1000)
    assert abs(found["operations"] - 500) <= 5
    assert found["unsent"] == 0


def test_processes_share_clients_rate_and_requests(redis, client):
    three = [cores()[0], cores()[-1], cores()[-1]]
    found = load.run(redis, cores=three, clients=4, records=100, mix="set=1", requests=301)
    assert found["operations"] == calls_of(client)["set"] == 301
    found = load.run(redis, 0.5, cores=three, clients=8, records=100, mix="get=1", rate=1000)
    assert abs(found["operations"] - 500) <= 6
    with pytest.raises(Missing, match="--processes and inserts"):
        load.run(redis, cores=three, clients=4, records=100, mix="insert=1", requests=10)
    with pytest.raises(Missing, match="--processes"):
        load.run(redis, cores=three, clients=2, records=100, mix="get=1", requests=10)


def test_a_cluster_gets_each_key_at_its_node(redis):
    with Group(redis.kind, cores()[:1], 3, False) as group:
        load.run(group, clients=3, records=300, load=1)
        found = load.run(group, clients=3, records=300, mix=load.STUDY_MIX, requests=300)
        assert found["errors"] == 0
        sizes = []
        for server in group.all():
            with server.client() as client:
                sizes.append(client.call("DBSIZE"))
    assert sum(sizes) > 300 and min(sizes) > 50
