"""redis-py's calls on data, a function for each group of commands; the program is redis_py.py."""

import datetime
import time

from redis.commands.core import HashDataPersistOptions
from redis.exceptions import ResponseError

# Groups that this server does not have.
lacking = set()


def plain(value):
    """Text for bytes and lists for tuples and sets, at any depth."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    return value


def is_about(ttl, seconds):
    """What is left of a time to live on a machine that may be slow."""
    return seconds - 30 < ttl <= seconds


def expect_error(error, call):
    try:
        reply = call()
    except error:
        return
    raise AssertionError(f"{reply!r} instead of an error")


def has(r, command):
    """Whether the server knows a command; Redis 7.0 lacks what came later."""
    is_known = command in plain(r.command_list())
    if not is_known:
        lacking.add(command)
    return is_known


def skipped():
    return f"not there: {', '.join(sorted(lacking))}" if lacking else "nothing left out"


def strings(r):
    assert r.set("k", "v") and plain(r.get("k")) == "v" and r.get("none") is None
    assert r.set("k", "w", nx=True) is None and plain(r.set("k", "w", get=True)) == "v"
    assert r.set("k", "x", px=100_000, xx=True) and 0 < r.pttl("k") <= 100_000
    assert r.set("k", "y", keepttl=True) and r.ttl("k") > 0
    assert r.setnx("k", 1) is False and r.setex("e", 100, "v") and r.psetex("e", 100_000, "v")
    assert r.mset({"a": 1, "b": 2}) and r.msetnx({"b": 1, "c": 1}) is False
    assert plain(r.mget("a", "none", "b")) == ["1", None, "2"]
    assert r.incr("a") == 2 and r.decr("a", 5) == -3 and r.incrbyfloat("a", 0.5) == -2.5
    assert r.append("k", "z") == 2 and r.strlen("k") == 2
    assert r.setrange("k", 1, "123") == 4 and plain(r.getrange("k", 0, 1)) == "y1"
    assert plain(r.getdel("k")) == "y123"
    assert plain(r.getex("b", ex=50)) == "2" and is_about(r.ttl("b"), 50)
    assert plain(r.lcs("b", "b")) == "2"
    expect_error(ResponseError, lambda: r.lpush("b", 1))


def keys(r):
    r.mset({f"key{n}": n for n in range(100)})
    assert sorted(plain(r.keys("key1?"))) == [f"key{n}" for n in range(10, 20)]
    assert r.exists("key1", "none") == 1 and r.delete("key1", "none") == 1 and r.unlink("key2") == 1
    assert r.expire("key3", 100) and is_about(r.ttl("key3"), 100) and r.persist("key3")
    assert r.expire("key3", 50, nx=True) and not r.expire("key3", 10, gt=True)
    soon = datetime.datetime.now() + datetime.timedelta(hours=1)
    assert r.expireat("key4", soon) and r.expiretime("key4") == int(soon.timestamp())
    assert r.pexpire("key5", 1)
    while r.exists("key5"):
        time.sleep(0.001)
    assert plain(r.type("key6")) == "string" and r.rename("key6", "new")
    expect_error(ResponseError, lambda: r.rename("none", "other"))
    assert r.renamenx("new", "key7") is False and r.copy("new", "copy")
    assert r.touch("new", "copy") == 2 and plain(r.randomkey())
    assert r.move("copy", 1) and not r.exists("copy")
    assert plain(r.object("ENCODING", "new")) == "int" and r.object("IDLETIME", "new") < 100
    dump = r.execute_command("DUMP", "new", NEVER_DECODE=True)
    assert r.restore("restored", 0, dump) and plain(r.get("restored")) == "6"
    r.rpush("list", 3, 1, 2)
    assert plain(r.sort("list")) == ["1", "2", "3"]
    assert plain(r.sort("list", desc=True, start=0, num=2)) == ["3", "2"]
    assert r.sort("list", store="sorted") == 3


def scans(r):
    r.mset({f"s{n}": n for n in range(500)})
    assert {plain(key) for key in r.scan_iter()} == {f"s{n}" for n in range(500)}
    assert len(list(r.scan_iter(match="s1*", count=100))) == 111
    assert list(r.scan_iter(_type="list")) == []
    r.hset("h", mapping={f"f{n}": n for n in range(300)})
    assert plain(dict(r.hscan_iter("h"))) == {f"f{n}": str(n) for n in range(300)}
    r.sadd("set", *range(300))
    assert {plain(member) for member in r.sscan_iter("set")} == {str(n) for n in range(300)}
    r.zadd("z", {f"m{n}": n for n in range(300)})
    assert plain(dict(r.zscan_iter("z"))) == {f"m{n}": float(n) for n in range(300)}


def bitmaps(r):
    assert r.setbit("b", 7, 1) == 0 and r.getbit("b", 7) == 1 and r.bitcount("b") == 1
    assert r.bitpos("b", 1) == 7 and r.set("c", b"\xff\x00") and r.bitop("AND", "d", "b", "c") == 2
    assert r.bitcount("c", 0, 7, "BIT") == 8 and r.bitpos("c", 0) == 8
    field = r.bitfield("f").set("u8", 0, 200).incrby("u8", 0, 100).get("u8", 0)
    assert field.execute() == [0, 44, 44]
    field = r.bitfield("f", default_overflow="SAT").incrby("u8", 0, 250)
    assert field.execute() == [255]


def hyperloglogs(r):
    assert r.pfadd("h", *range(1000)) == 1 and abs(r.pfcount("h") - 1000) < 30
    r.pfadd("i", *range(500, 1500))
    assert r.pfmerge("j", "h", "i") and abs(r.pfcount("j") - 1500) < 45


def lists(r):
    assert r.rpush("l", "a", "b", "c") == 3 and r.lpush("l", "z") == 4 and r.llen("l") == 4
    assert plain(r.lrange("l", 0, -1)) == ["z", "a", "b", "c"] and plain(r.lindex("l", 1)) == "a"
    assert r.lset("l", 0, "y") and r.linsert("l", "BEFORE", "b", "x") == 5
    assert plain(r.lpop("l")) == "y" and plain(r.rpop("l", 2)) == ["c", "b"]
    assert r.lrem("l", 0, "x") == 1 and r.rpushx("none", 1) == 0
    r.rpush("m", *"abcabc")
    assert r.lpos("m", "b", rank=2) == 4 and r.lpos("m", "b", count=0) == [1, 4]
    assert plain(r.lmove("m", "n", "LEFT", "RIGHT")) == "a" and plain(r.rpoplpush("m", "n")) == "c"
    assert r.ltrim("m", 0, 1) and plain(r.lrange("m", 0, -1)) == ["b", "c"]
    assert plain(r.lmpop(2, "none", "m", direction="LEFT", count=5)) == ["m", ["b", "c"]]


def sets(r):
    assert r.sadd("a", 1, 2, 3) == 3 and r.sadd("b", 2, 3, 4) == 3 and r.scard("a") == 3
    assert plain(set(r.smembers("a"))) == ["1", "2", "3"] and r.sismember("a", 2)
    assert r.smismember("a", [1, 9]) == [1, 0] and plain(set(r.sinter("a", "b"))) == ["2", "3"]
    assert plain(set(r.sunion("a", "b"))) == ["1", "2", "3", "4"]
    assert plain(set(r.sdiff("a", "b"))) == ["1"] and r.sintercard(2, ["a", "b"], limit=1) == 1
    assert r.sinterstore("c", "a", "b") == 2 and r.sunionstore("c", "a", "b") == 4
    assert r.sdiffstore("c", "a", "b") == 1 and r.smove("a", "b", 1) and r.srem("b", 1, 9) == 1
    assert plain(r.srandmember("a")) in ("2", "3") and len(r.srandmember("a", -5)) == 5
    assert len(r.spop("a", 2)) == 2 and not r.exists("a")


def hashes(r):
    assert r.hset("h", "f", "v") == 1 and r.hset("h", mapping={"g": 1, "i": 2}) == 2
    assert plain(r.hget("h", "f")) == "v" and plain(r.hmget("h", "f", "none")) == ["v", None]
    assert plain(r.hgetall("h")) == {"f": "v", "g": "1", "i": "2"} and r.hlen("h") == 3
    assert r.hincrby("h", "g", 4) == 5 and r.hincrbyfloat("h", "g", 0.5) == 5.5
    assert sorted(plain(r.hkeys("h"))) == ["f", "g", "i"] and len(r.hvals("h")) == 3
    assert r.hsetnx("h", "f", 1) == 0 and r.hexists("h", "f") and r.hstrlen("h", "f") == 1
    assert len(r.hrandfield("h", 2, withvalues=True)) in (2, 4)
    assert r.hdel("h", "f", "g", "i") == 3 and not r.exists("h")


def field_ttl(r):
    if not has(r, "hexpire"):
        return
    r.hset("h", mapping={"a": 1, "b": 2, "c": 3})
    assert r.hexpire("h", 100, "a", "none") == [1, -2]
    assert r.hpexpire("h", 100_000, "b", nx=True) == [1]
    left = r.httl("h", "a", "c", "none")
    assert is_about(left[0], 100) and left[1:] == [-1, -2] and r.hpttl("h", "b")[0] <= 100_000
    at = int(time.time()) + 1000
    assert r.hexpireat("h", at, "a", gt=True) == [1] and r.hexpiretime("h", "a") == [at]
    assert r.hpexpireat("h", at * 1000, "a", lt=True) == [0]
    assert r.hpexpiretime("h", "a") == [at * 1000] and r.hpersist("h", "a", "c") == [1, -1]
    assert r.hpexpire("h", 1, "b") == [1]
    while r.hexists("h", "b"):
        time.sleep(0.001)
    assert plain(r.hgetall("h")) == {"a": "1", "c": "3"}
    if has(r, "hgetex"):
        assert plain(r.hgetex("h", "a", ex=50)) == ["1"] and is_about(r.httl("h", "a")[0], 50)
        assert r.hsetex("h", "d", "4", ex=60) == 1 and is_about(r.httl("h", "d")[0], 60)
        only_new = HashDataPersistOptions.FNX
        assert r.hsetex("h", "d", "5", data_persist_option=only_new) == 0
    if has(r, "hgetdel"):
        assert plain(r.hgetdel("h", "d", "none")) == ["4", None] and not r.hexists("h", "d")


def sorted_sets(r):
    assert r.zadd("z", {"a": 1, "b": 2, "c": 3}) == 3 and r.zcard("z") == 3
    assert r.zadd("z", {"a": 5}, nx=True) == 0 and r.zadd("z", {"a": 0}, gt=True, ch=True) == 0
    assert r.zadd("z", {"a": 1}, incr=True) == 2 and r.zincrby("z", -1, "a") == 1
    assert r.zscore("z", "b") == 2 and r.zmscore("z", ["a", "none"]) == [1, None]
    assert r.zrank("z", "c") == 2 and r.zrevrank("z", "c") == 0
    assert plain(r.zrange("z", 0, -1, withscores=True)) == [["a", 1], ["b", 2], ["c", 3]]
    assert plain(r.zrange("z", "(1", "+inf", byscore=True, offset=0, num=1)) == ["b"]
    assert plain(r.zrevrange("z", 0, 0)) == ["c"] and r.zcount("z", 1, 2) == 2
    assert plain(r.zrangebyscore("z", 2, 3)) == ["b", "c"]
    r.zadd("lex", dict.fromkeys("abcd", 0))
    assert plain(r.zrangebylex("lex", "[b", "(d")) == ["b", "c"]
    assert r.zlexcount("lex", "-", "+") == 4
    assert r.zremrangebylex("lex", "-", "[a") == 1 and r.zremrangebyrank("lex", 0, 0) == 1
    assert r.zremrangebyscore("lex", 0, 0) == 2 and r.zrangestore("y", "z", 0, 1) == 2
    assert r.zunionstore("u", {"z": 2, "y": 1}, aggregate="MAX") == 3
    assert plain(r.zunion(["z", "y"], withscores=True))[0] == ["a", 2]
    assert plain(r.zinter(["z", "y"])) == ["a", "b"] and r.zintercard(2, ["z", "y"]) == 2
    assert plain(r.zdiff(["z", "y"])) == ["c"] and r.zdiffstore("d", ["z", "y"]) == 1
    assert plain(r.zpopmin("z"))[0] in (["a", 1], "a") and len(r.zpopmax("z", 5)) == 2
    assert plain(r.zmpop(1, ["u"], min=True, count=1)) in (
        ["u", [["a", "2"]]],
        ["u", [["a", 2.0]]],
    )
    assert plain(r.zrandmember("u")) in ("b", "c") and r.zrem("u", "b", "c") == 2


def geo(r):
    places = (13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania")
    assert r.geoadd("g", places) == 2
    assert 166 < r.geodist("g", "Palermo", "Catania", "km") < 167
    assert plain(r.geohash("g", "Palermo")) == ["sqc8b49rny0"]
    assert abs(r.geopos("g", "Palermo")[0][0] - 13.361389) < 0.0001
    found = r.geosearch("g", longitude=15, latitude=37, radius=200, unit="km", sort="ASC")
    assert plain(found) == ["Catania", "Palermo"]
    box = r.geosearch("g", member="Palermo", width=10, height=10, unit="km", withdist=True)
    assert plain(box)[0][0] == "Palermo"
    assert r.geosearchstore("near", "g", member="Palermo", radius=1, unit="km") == 1


def streams(r):
    assert plain(r.xadd("s", {"a": 1}, id="1-1")) == "1-1"
    for n in range(2, 11):
        r.xadd("s", {"a": n}, id=f"{n}-1")
    assert r.xlen("s") == 10 and len(r.xrange("s", "3", "5")) == 3
    assert plain(r.xrevrange("s", count=1)) == [["10-1", {"a": "10"}]]
    assert "2-1" in str(plain(r.xread({"s": "1-1"}, count=1)))
    assert r.xgroup_create("s", "g", "0") and r.xgroup_createconsumer("s", "g", "idle") == 1
    assert "1-1" in str(plain(r.xreadgroup("g", "one", {"s": ">"}, count=3)))
    assert r.xack("s", "g", "1-1") == 1 and plain(r.xpending("s", "g"))["pending"] == 2
    pending = r.xpending_range("s", "g", "-", "+", 10)
    assert [plain(entry["message_id"]) for entry in pending] == ["2-1", "3-1"]
    assert len(r.xclaim("s", "g", "two", 0, ["2-1"])) == 1
    claimed = plain(r.xautoclaim("s", "g", "two", 0, count=10))
    assert [entry[0] for entry in claimed[1]] == ["2-1", "3-1"]
    info = plain(r.xinfo_groups("s"))[0]
    assert info["name"] == "g" and info["lag"] == 7, info
    assert {plain(c)["name"] for c in r.xinfo_consumers("s", "g")} == {"idle", "one", "two"}
    assert r.xinfo_stream("s")["length"] == 10 and r.xdel("s", "5-1") == 1
    assert r.xtrim("s", maxlen=4, approximate=False) == 5 and r.xlen("s") == 4
    assert r.xgroup_setid("s", "g", "0") and r.xgroup_delconsumer("s", "g", "two") == 2
    assert r.xgroup_destroy("s", "g") == 1
    assert plain(r.xadd("s", {"a": 1}, maxlen=2, approximate=False, id="20-*")) == "20-0"


CHECKS = [
    strings,
    keys,
    scans,
    bitmaps,
    hyperloglogs,
    lists,
    sets,
    hashes,
    field_ttl,
    sorted_sets,
    geo,
    streams,
]
