"""redis-py against every group of commands, in RESP2 and RESP3, with and without decoding.

Each check gets an empty server. What redis-py makes of a reply differs by protocol; `plain` brings
it to one form, so that every expectation stands here once.

python redis_py.py PORT
"""

import sys
import threading
import time

import redis
import redis_py_data
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, ResponseError, WatchError
from redis.retry import Retry
from redis_py_data import expect_error, has, plain

WAIT_S = 30


def connect(port, **options):
    return redis.Redis(port=port, retry=Retry(NoBackoff(), 0), socket_timeout=WAIT_S, **options)


def pipelines(r):
    with r.pipeline(transaction=False) as pipe:
        for n in range(1000):
            pipe.set(f"p{n}", n).get(f"p{n}")
        replies = plain(pipe.execute())
    assert replies == [value for n in range(1000) for value in (True, str(n))]
    with r.pipeline(transaction=False) as pipe:
        pipe.set("text", "abc").incr("text").get("text")
        replies = pipe.execute(raise_on_error=False)
    assert isinstance(replies[1], ResponseError) and plain(replies[2]) == "abc"


def transactions(r):
    with r.pipeline() as pipe:
        pipe.multi()
        pipe.set("a", 1).incr("a").lpush("l", "x").exists("a", "l")
        assert pipe.execute() == [True, 2, 1, 2]
    with r.pipeline() as pipe:
        pipe.watch("a")
        r.set("a", 10)
        pipe.multi()
        pipe.set("a", 11)
        expect_error(WatchError, pipe.execute)
    assert plain(r.get("a")) == "10"
    with r.pipeline() as pipe:
        pipe.set("a", 12).execute_command("NOSUCH")
        expect_error(ResponseError, pipe.execute)
    assert plain(r.get("a")) == "10"
    with r.pipeline() as pipe:
        pipe.set("a", "text").incr("a").set("b", 1)
        replies = pipe.execute(raise_on_error=False)
    assert isinstance(replies[1], ResponseError) and replies[2] is True


def watch_retries(r):
    """Threads that add to one counter by WATCH: whoever is late tries again, none is lost."""

    def add():
        for _ in range(50):
            r.transaction(increment, "counter")

    def increment(pipe):
        value = int(pipe.get("counter") or 0)
        pipe.multi()
        pipe.set("counter", value + 1)

    run_threads([threading.Thread(target=add) for _ in range(4)])
    assert int(r.get("counter")) == 200


def pubsub(r):
    with r.pubsub() as p:
        p.subscribe("news")
        p.psubscribe("n*")
        kinds = [p.get_message(timeout=WAIT_S)["type"] for _ in range(2)]
        assert kinds == ["subscribe", "psubscribe"]
        assert plain(r.pubsub_channels()) == ["news"] and r.pubsub_numpat() == 1
        assert plain(r.pubsub_numsub("news", "none")) == [["news", 1], ["none", 0]]
        assert r.publish("news", "hello") == 2
        seen = [p.get_message(timeout=WAIT_S) for _ in range(2)]
        assert sorted(plain(m["type"]) for m in seen) == ["message", "pmessage"]
        assert all(plain(m["data"]) == "hello" for m in seen)
        p.ping()
        assert p.get_message(timeout=WAIT_S)
        p.unsubscribe()
        p.punsubscribe()
        assert [p.get_message(timeout=WAIT_S)["data"] for _ in range(2)] == [1, 0]
    with r.pubsub() as p:
        heard = []
        p.subscribe(**{"handled": lambda m: heard.append(plain(m["data"]))})
        thread = p.run_in_thread(sleep_time=0.01)
        while not r.publish("handled", "x"):
            pass
        while not heard:
            time.sleep(0.01)
        thread.stop()
        thread.join(WAIT_S)
    with r.pubsub() as p:
        p.ssubscribe("shard")
        assert p.get_message(timeout=WAIT_S)["type"] == "ssubscribe"
        assert r.spublish("shard", "x") == 1
        assert plain(p.get_sharded_message(timeout=WAIT_S)["data"]) == "x"


def keyspace_events(r):
    r.config_set("notify-keyspace-events", "KEA")
    with r.pubsub() as p:
        p.psubscribe("__key*__:*")
        p.get_message(timeout=WAIT_S)
        r.set("k", "v")
        r.delete("k")
        seen = [p.get_message(timeout=WAIT_S) for _ in range(4)]
    r.config_set("notify-keyspace-events", "")
    events = [plain([m["channel"], m["data"]]) for m in seen]
    assert sorted(events) == sorted(
        [
            ["__keyspace@0__:k", "set"],
            ["__keyevent@0__:set", "k"],
            ["__keyspace@0__:k", "del"],
            ["__keyevent@0__:del", "k"],
        ]
    ), events


def scripts(r):
    assert r.eval("return {1, 'two', {3}}", 0)[0] == 1
    assert plain(r.eval("return {KEYS[1], ARGV[1]}", 1, "k", "v")) == ["k", "v"]
    double = r.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1]) * 2")
    r.script_flush()
    assert double(keys=["n"], args=[5]) == 10  # NOSCRIPT, SCRIPT LOAD, again
    assert double(keys=["n"], args=[5]) == 20
    assert r.script_exists(double.sha, "0" * 40) == [True, False]
    with r.pipeline() as pipe:
        double(keys=["n"], args=[1], client=pipe)
        double(keys=["n"], args=[1], client=pipe)
        assert pipe.execute() == [22, 24]
    # Keys that nobody declared.
    undeclared = "redis.call('SET', 'un' .. 'declared', ARGV[1]) return redis.call('DBSIZE')"
    assert r.eval(undeclared, 0, "x") == 2
    assert plain(r.eval_ro("return redis.call('GET', KEYS[1])", 1, "undeclared")) == "x"
    expect_error(ResponseError, lambda: r.eval_ro("return redis.call('SET', 'a', 1)", 0))
    expect_error(ResponseError, lambda: r.eval("return redis.error_reply('ERR mine')", 0))
    assert plain(r.eval("return cjson.encode({1, 2})", 0)) == "[1,2]"


def functions(r):
    code = (
        "#!lua name=mine\n"
        "redis.register_function('put', function(keys, args) "
        "return redis.call('SET', keys[1], args[1]) end)\n"
        "redis.register_function{function_name='look', flags={'no-writes'}, "
        "callback=function(keys) return redis.call('GET', keys[1]) end}"
    )
    assert plain(r.function_load(code)) == "mine"
    expect_error(ResponseError, lambda: r.function_load(code))
    assert plain(r.function_load(code, replace=True)) == "mine"
    assert plain(r.fcall("put", 1, "k", "v")) == "OK"
    assert plain(r.fcall_ro("look", 1, "k")) == "v"
    expect_error(ResponseError, lambda: r.fcall_ro("put", 1, "k", "v"))
    assert "mine" in str(plain(r.function_list(library="mi*")))
    dump = r.execute_command("FUNCTION", "DUMP", NEVER_DECODE=True)
    r.function_delete("mine")
    assert r.function_list() == []
    r.function_restore(dump)
    assert plain(r.fcall_ro("look", 1, "k")) == "v"
    r.function_flush()


def acl(r, port):
    r.acl_setuser(
        "reader",
        enabled=True,
        passwords=["+secret"],
        keys=["open:*"],
        categories=["+@read"],
        commands=["+ping"],
        reset=True,
    )
    user = plain(r.acl_getuser("reader"))
    assert "on" in user["flags"] and len(user["passwords"]) == 1, user
    assert "reader" in plain(r.acl_users()) and plain(r.acl_whoami()) == "default"
    reader = connect(port, username="reader", password="secret")
    assert reader.get("open:a") is None and reader.ping()
    expect_error(NoPermissionError, lambda: reader.get("closed"))
    expect_error(NoPermissionError, lambda: reader.set("open:a", 1))
    wrong = connect(port, username="reader", password="wrong")
    expect_error(redis.AuthenticationError, wrong.ping)
    reasons = {plain(entry)["reason"] for entry in r.acl_log()}
    assert reasons == {"key", "command", "auth"}, reasons
    r.acl_log_reset()
    assert "get" in plain(r.acl_cat("read")) and len(r.acl_genpass()) == 64
    assert r.acl_deluser("reader") == 1
    # Whoever is logged in as a deleted user is sent away.
    expect_error((redis.ConnectionError, redis.AuthenticationError), reader.ping)


def server_commands(r):
    assert r.ping() and plain(r.echo("x")) == "x"
    r.set("k", "v")
    assert r.dbsize() == 1 and r.info()["redis_version"] and r.info("keyspace")["db0"]["keys"] == 1
    assert plain(r.config_get("maxmemory*"))["maxmemory"] == "0"
    r.config_set("maxmemory-samples", 7)
    assert plain(r.config_get("maxmemory-samples")) == {"maxmemory-samples": "7"}
    r.config_resetstat()
    assert r.command_count() > 200 and "get" in plain(r.command())
    assert plain(r.command_getkeys("MSET", "a", 1, "b", 2)) == ["a", "b"]
    assert isinstance(r.time()[0], int) and r.memory_usage("k") > 0
    r.slowlog_reset()
    assert r.slowlog_len() >= 0 and isinstance(r.slowlog_get(), list)
    assert r.client_id() > 0 and r.client_setname("me") and plain(r.client_getname()) == "me"
    assert any(entry["name"] == "me" for entry in r.client_list())
    assert r.client_info()["name"] == "me"
    assert r.client_no_evict("ON") and r.client_setname("")
    assert r.ping() and plain(r.execute_command("LATENCY", "HISTOGRAM", "ping"))
    assert r.lastsave() is not None and r.wait(0, 10) == 0
    assert plain(r.role())[0] == "master"
    r.swapdb(0, 1)
    assert r.dbsize() == 0
    r.swapdb(0, 1)
    r.flushdb()
    assert r.dbsize() == 0


def clients(r, port):
    other = connect(port, client_name="victim")
    victim = other.client_id()
    assert r.client_kill_filter(_id=victim) == 1
    try:
        other.ping()
    except redis.ConnectionError:
        pass  # The end came while it asked.
    assert other.client_id() != victim
    waiting = connect(port)
    waiting_id, seen = waiting.client_id(), []
    thread = threading.Thread(target=lambda: seen.append(waiting.blpop("none", 0)))
    thread.start()
    while not r.client_unblock(waiting_id):
        time.sleep(0.01)
    thread.join(WAIT_S)
    assert seen == [None]


def pauses(r):
    if not has(r, "client|pause"):
        return
    start = time.monotonic()
    r.client_pause(50)
    r.set("k", "v")
    # The server counts whole milliseconds.
    assert time.monotonic() - start >= 0.049
    r.client_pause(60_000, all=False)
    r.client_unpause()
    assert r.set("k", "v")


def blocking(r, port):
    other = connect(port)

    def later(call):
        thread = threading.Timer(0.05, call)
        thread.start()
        return thread

    later(lambda: other.rpush("l", "a"))
    assert plain(r.blpop("l", WAIT_S)) == ["l", "a"]
    later(lambda: other.rpush("l", "b"))
    assert plain(r.blmove("l", "m", WAIT_S, "LEFT", "RIGHT")) == "b"
    later(lambda: other.zadd("z", {"a": 1}))
    assert plain(r.bzpopmin("z", WAIT_S)) == ["z", "a", 1.0]
    later(lambda: other.xadd("s", {"f": "v"}, id="1-1"))
    reply = plain(r.xread({"s": "$"}, block=WAIT_S * 1000))
    assert "1-1" in str(reply), reply
    assert r.brpop("none", 0.01) is None


def locks(r):
    lock = r.lock("lock", timeout=10)
    assert lock.acquire() and not r.lock("lock").acquire(blocking=False)
    lock.extend(10)
    lock.release()
    with r.lock("lock", timeout=10, blocking_timeout=1):
        assert r.exists("lock")
    assert not r.exists("lock")


def run_threads(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive(), "a thread does not come to its end"


WITH_CLIENT = [
    *redis_py_data.CHECKS,
    pipelines,
    transactions,
    watch_retries,
    pubsub,
    keyspace_events,
    scripts,
    functions,
    server_commands,
    pauses,
    locks,
]
WITH_PORT = [acl, clients, blocking]


def main():
    port = int(sys.argv[1])
    variants = [(protocol, decode) for protocol in (2, 3) for decode in (False, True)]
    for protocol, decode in variants:
        r = connect(port, protocol=protocol, decode_responses=decode)
        for check in WITH_CLIENT + WITH_PORT:
            r.flushall()
            try:
                check(r, port) if check in WITH_PORT else check(r)
            except Exception:
                print(f"{check.__name__}, RESP{protocol}, decode_responses={decode}")
                raise
        r.close()
    count = len(WITH_CLIENT) + len(WITH_PORT)
    print(f"redis-py: {count} groups in {len(variants)} variants; {redis_py_data.skipped()}")


if __name__ == "__main__":
    main()
