//! HOTKEYS, hotkeys-sample, and OBJECT FREQ of what they have counted.

use std::collections::HashMap;

use kvasir_resp::value::Value;

use crate::check::{check_ours, show, split};
use crate::harness::{Client, Server, each_backend, figure, wait_until};

/// Calls in one go.
const PIPELINE: usize = 500;
/// Calls of the load whose top is looked for in a sample.
const TOP_CALLS: usize = 2_000_000;

/// A field of a map, which RESP2 has as a list.
fn field<'v>(map: &'v Value, name: &str) -> Option<&'v Value> {
    let mut pairs = map.as_array().expect("a list").chunks_exact(2);
    let found = pairs.find(|pair| pair[0].as_bytes() == Some(name.as_bytes()));
    found.map(|pair| &pair[1])
}

fn number(map: &Value, name: &str) -> i64 {
    field(map, name).and_then(Value::as_integer).unwrap_or_else(|| panic!("{name}: {map:?}"))
}

/// What HOTKEYS GET tells.
fn tracked(client: &mut Client) -> Value {
    let Value::Array(mut all) = client.ask("HOTKEYS GET") else { panic!("a list") };
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// Keys and figures of one of its lists, in its order.
fn keys(map: &Value, name: &str) -> Vec<(String, i64)> {
    let list = field(map, name).unwrap_or_else(|| panic!("{name}: {map:?}"));
    let pairs = list.as_array().expect("a list").chunks_exact(2);
    let text = |value: &Value| value.as_bytes().unwrap().escape_ascii().to_string();
    pairs.map(|pair| (text(&pair[0]), pair[1].as_integer().unwrap())).collect()
}

/// Numbers of keys as Zipf's law has them, and how often each was drawn.
struct Zipf {
    sums: Vec<f64>,
    state: u64,
    drawn: HashMap<usize, u64>,
}

impl Zipf {
    fn new(keys: usize, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Zipf { sums: sums.collect(), state: 17, drawn: HashMap::new() }
    }

    fn draw(&mut self) -> usize {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let part = (self.state >> 11) as f64 / (1_u64 << 53) as f64;
        let sum = part * self.sums[self.sums.len() - 1];
        let key = self.sums.partition_point(|known| *known <= sum);
        *self.drawn.entry(key).or_default() += 1;
        key
    }

    /// The keys that were drawn most, and as often as the last of them.
    fn top(&self, count: usize) -> Vec<usize> {
        let mut all: Vec<_> = self.drawn.iter().map(|(key, count)| (*count, *key)).collect();
        all.sort_unstable_by(|one, other| other.cmp(one));
        let least = all[count - 1].0;
        all.retain(|(count, _)| *count >= least);
        all.into_iter().map(|(_, key)| key).collect()
    }
}

fn load(server: &Server, zipf: &mut Zipf, calls: usize) {
    let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for round in 0..calls / PIPELINE {
        let client = &mut clients[round % 4];
        let call = |_| format!("GET key:{}\r\n", zipf.draw());
        let bytes: String = (0..PIPELINE).map(call).collect();
        client.send_raw(bytes.as_bytes());
        (0..PIPELINE).for_each(|_| drop(client.read_reply().unwrap()));
    }
}

fn listed(client: &mut Client, words: &str) -> Vec<(String, Value)> {
    let Value::Array(all) = client.ask(&format!("HOTKEYS LIST {words}")) else { panic!("a list") };
    let name = |map: &Value| field(map, "key").unwrap().as_bytes().unwrap().to_vec();
    all.into_iter().map(|map| (String::from_utf8(name(&map)).unwrap(), map)).collect()
}

/// Of all calls the true top is found, on four workers and among more keys than have a place. Its
/// last ones are used as often as those behind them, to some percents.
#[test]
fn the_top_of_a_zipf_load_is_found() {
    let server = Server::kvasir("io_uring", &["--io-threads", "4", "--hotkeys-sample", "1"]);
    let mut zipf = Zipf::new(20_000, 1.0);
    load(&server, &mut zipf, 200_000);
    let [certain, possible] = [zipf.top(16), zipf.top(24)];
    let mut client = server.connect();
    let listed = listed(&mut client, "BY reads COUNT 20");
    assert_eq!(listed.len(), 20);
    let is_listed = |key: &usize| listed.iter().any(|(name, _)| *name == format!("key:{key}"));
    assert!(certain.iter().all(is_listed), "{certain:?} {listed:?}");
    for (name, map) in &listed {
        let key: usize = name.strip_prefix("key:").unwrap().parse().unwrap();
        assert!(possible.contains(&key), "{name} is not among {possible:?}");
        let truth = zipf.drawn[&key] as i64;
        let (reads, writes) = (number(map, "reads"), number(map, "writes"));
        assert!(reads <= truth && reads * 4 > truth * 3, "{name}: {reads} of {truth}");
        assert_eq!(writes, 0);
        assert!(number(map, "net-bytes") > 14 * reads && number(map, "cpu-us") > 0, "{map:?}");
    }
}

/// The true top 20 at one call of a hundred. What is drawn of ranks 20 and 21 differs by less than
/// chance has it, so all of them are among the first 30, and the first of them among the first 20.
#[test]
fn the_top_20_of_a_zipf_load_is_found_in_a_sample() {
    let server = Server::kvasir("io_uring", &["--io-threads", "2", "--hotkeys-sample", "100"]);
    let mut zipf = Zipf::new(100_000, 1.5);
    load(&server, &mut zipf, TOP_CALLS);
    let mut client = server.connect();
    let listed = listed(&mut client, "BY reads COUNT 30");
    let number = |(name, _): &(String, Value)| name.strip_prefix("key:").unwrap().parse().unwrap();
    let told: Vec<usize> = listed.iter().map(number).collect();
    let top = zipf.top(20);
    assert!(top.iter().all(|key| told.contains(key)), "{top:?} {told:?}");
    assert!(top[..12].iter().all(|key| told[..20].contains(key)), "{top:?} {told:?}");
    let missed = top.iter().filter(|key| !told[..20].contains(key)).count();
    let bytes = figure(&mut client, "memory", "hotkeys_bytes");
    println!(
        "of the true top 20 {missed} are told further down; sketches of two workers: {bytes} bytes"
    );
    // Four sketches of 1024 keys and 16384 slots, of either worker.
    assert!(bytes < 2 * (1 << 20) + (1 << 19), "{bytes}");
}

/// Slots are known by keys and by use, without a cluster.
#[test]
fn slots_are_told_by_keys_and_by_use() {
    each_backend(&["--io-threads", "4"], |server| {
        let mut client = server.connect();
        let slots = |client: &mut Client, words: &str| -> HashMap<usize, i64> {
            let Value::Array(all) = client.ask(format!("HOTKEYS SLOTS {words}").trim_end()) else {
                panic!("a list")
            };
            assert_eq!(all.len(), 16384);
            let all = all.iter().map(|value| value.as_integer().unwrap());
            all.enumerate().filter(|(_, count)| *count > 0).collect()
        };
        let of = |key: &str| usize::from(kvasir_structures::crc16::slot_of(key.as_bytes()));
        let off = "-ERR hotkeys-sample is 0: no keys are counted";
        assert_eq!(show(&client.ask("HOTKEYS SLOTS BY calls")), off);
        client.ask("MSET a 1 b 2 {a}c 3");
        client.ask("SELECT 5");
        client.ask("SET a 1");
        client.ask("SELECT 0");
        assert_eq!(slots(&mut client, ""), HashMap::from([(of("a"), 3), (of("b"), 1)]));
        client.ask("DEL b");
        assert_eq!(slots(&mut client, "BY keys"), HashMap::from([(of("a"), 3)]));
        client.ask("CONFIG SET hotkeys-sample 1");
        wait_until("calls are counted", || {
            client.ask("GET probe");
            slots(&mut client, "BY reads").contains_key(&of("probe"))
        });
        // Bytes and calls are of both keys; whoever writes reads nothing.
        for _ in 0..20 {
            client.ask("MSET x 1 y 2");
            client.ask("GET x");
        }
        let writes = slots(&mut client, "BY writes");
        assert_eq!(writes, HashMap::from([(of("x"), 20), (of("y"), 20)]));
        assert_eq!(slots(&mut client, "BY reads")[&of("x")], 20);
        assert_eq!(slots(&mut client, "BY calls")[&of("x")], 40);
        let (net, cpu) = (slots(&mut client, "BY net"), slots(&mut client, "BY cpu"));
        assert!(net[&of("x")] > net[&of("y")] && net[&of("y")] > 20 * 10, "{net:?}");
        assert!(cpu[&of("x")] > 0 && cpu[&of("y")] > 0, "{cpu:?}");
        assert_eq!(show(&client.ask("HOTKEYS SLOTS BY size")), "-ERR syntax error");
        assert_eq!(show(&client.ask("HOTKEYS SLOTS keys")), "-ERR syntax error");
    });
}

/// Of one call of many what stands out is found.
#[test]
fn samples_find_what_stands_out() {
    let server = Server::kvasir("io_uring", &["--io-threads", "2", "--hotkeys-sample", "100"]);
    let mut zipf = Zipf::new(20_000, 1.2);
    load(&server, &mut zipf, 400_000);
    let mut client = server.connect();
    let listed = listed(&mut client, "COUNT 20");
    let found = |key: &usize| listed.iter().any(|(name, _)| *name == format!("key:{key}"));
    assert!(zipf.top(8).iter().all(found), "{:?} {listed:?}", zipf.top(8));
    // What is told is of all calls.
    let (name, map) = &listed[0];
    let truth = zipf.drawn[&name.strip_prefix("key:").unwrap().parse().unwrap()] as i64;
    let reads = number(map, "reads");
    assert!(reads * 3 > truth * 2 && reads * 2 < truth * 3, "{reads} of {truth}");
}

/// As redis-cli --hotkeys asks: of every key that SCAN tells.
#[test]
fn frequencies_are_told_under_any_policy() {
    let error = "-ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
                 Please note that when switching between policies at runtime LRU and LFU data \
                 will take some time to adjust.";
    each_backend(&[], |server| {
        let mut client = server.connect();
        client.ask("MSET hot v warm v cold v");
        assert_eq!(show(&client.ask("OBJECT FREQ hot")), error);
        assert_eq!(show(&client.ask("CONFIG SET hotkeys-sample 1")), "+OK");
        wait_until("calls are counted", || {
            (0..100).for_each(|_| drop(client.ask("GET hot")));
            (0..5).for_each(|_| drop(client.ask("GET warm")));
            let [hot, warm, cold] = ["hot", "warm", "cold"]
                .map(|key| client.ask(&format!("OBJECT FREQ {key}")).as_integer().unwrap());
            hot > warm + 20 && warm > cold && hot <= 255
        });
        assert_eq!(show(&client.ask("OBJECT FREQ none")), "_");
        // Looking does not count.
        let before = client.ask("OBJECT FREQ cold");
        (0..50).for_each(|_| drop(client.ask("OBJECT FREQ cold")));
        assert_eq!(client.ask("OBJECT FREQ cold"), before);
        client.ask("CONFIG SET hotkeys-sample 0");
        wait_until("it is off", || show(&client.ask("OBJECT FREQ hot")) == error);
        let refused = "-ERR hotkeys-sample is 0: no keys are counted";
        assert_eq!(show(&client.ask("HOTKEYS LIST")), refused);
    });
}

#[test]
fn tracking_tells_what_redis_tells() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        assert_eq!(show(&client.ask("HOTKEYS GET")), "_");
        assert_eq!(show(&client.ask("HOTKEYS STOP")), "_");
        assert_eq!(show(&client.ask("HOTKEYS START METRICS 2 CPU NET COUNT 3")), "+OK");
        let again = "-ERR hotkey tracking session already in progress";
        assert_eq!(show(&client.ask("HOTKEYS START METRICS 1 CPU")), again);
        for call in [
            "SET a 1",
            "MULTI",
            "SET b 1",
            "GET a",
            "EXEC",
            "EVAL \"return redis.call('set', KEYS[1], 'a value of some length')\" 1 c",
            "MSET a 1 d 2",
            "PING",
        ] {
            client.send(&split(call));
            client.read_reply().unwrap();
        }
        let found = tracked(&mut client);
        assert_eq!(number(&found, "tracking-active"), 1);
        assert_eq!(number(&found, "sample-ratio"), 1);
        assert_eq!(show(field(&found, "selected-slots").unwrap()), "[[:0 :16383]]");
        let by_net = keys(&found, "by-net-bytes");
        assert_eq!(by_net.len(), 3, "{found:?}");
        assert_eq!(by_net[0].0, "c");
        assert!(by_net.iter().all(|(name, bytes)| name != "PING" && *bytes > 10));
        assert!(keys(&found, "by-cpu-time-us").iter().all(|(_, us)| *us > 0));
        let total = number(&found, "total-net-bytes");
        assert!(total >= by_net.iter().map(|(_, bytes)| bytes).sum());
        assert_eq!(number(&found, "net-bytes-all-commands-all-slots"), total);
        assert!(field(&found, "all-commands-selected-slots-us").is_none());
        let refused = "-ERR hotkey tracking session in progress, stop tracking first";
        assert_eq!(show(&client.ask("HOTKEYS RESET")), refused);
        assert_eq!(show(&client.ask("HOTKEYS STOP")), "+OK");
        assert_eq!(show(&client.ask("HOTKEYS STOP")), "_");
        client.ask("SET e 1");
        let found = tracked(&mut client);
        assert_eq!(number(&found, "tracking-active"), 0);
        assert_eq!(number(&found, "total-net-bytes"), total);
        assert_eq!(show(&client.ask("HOTKEYS RESET")), "+OK");
        assert_eq!(show(&client.ask("HOTKEYS GET")), "_");
        client.ask("HELLO 3");
        client.ask("HOTKEYS START METRICS 1 WRITES SAMPLE 5");
        client.ask("HOTKEYS STOP");
        let Value::Array(all) = client.ask("HOTKEYS GET") else { panic!("a list") };
        let shown = show(&all[0]);
        assert!(shown.starts_with("{$tracking-active :0 $sample-ratio :5 "), "{shown}");
        assert!(shown.contains(" $by-writes [") && !shown.contains("by-net-bytes"), "{shown}");
    });
}

#[test]
fn tracking_ends_by_itself() {
    let server = Server::kvasir("epoll", &[]);
    let mut client = server.connect();
    client.ask("HOTKEYS START METRICS 1 NET DURATION 1");
    wait_until("its time is over", || {
        client.ask("SET k v");
        number(&tracked(&mut client), "tracking-active") == 0
    });
    let found = tracked(&mut client);
    assert_eq!(number(&found, "collection-duration-ms"), 1000);
    assert_eq!(keys(&found, "by-net-bytes")[0].0, "k");
    assert_eq!(show(&client.ask("HOTKEYS START METRICS 1 CPU")), "+OK");
}

#[test]
fn slots_are_those_of_the_node() {
    let server = Server::kvasir("epoll", &["--cluster-enabled", "yes"]);
    let mut client = server.connect();
    assert_eq!(show(&client.ask("CLUSTER ADDSLOTSRANGE 0 8191")), "+OK");
    let mut ask = |call: &str| show(&client.ask(call));
    let start = "HOTKEYS START METRICS 1 CPU SLOTS";
    let range = "-ERR Invalid or out of range slot";
    for (words, error) in [
        ("2 0", "-ERR not enough slot numbers provided"),
        ("2 0 0", "-ERR duplicate slot number"),
        ("1 0 SLOTS 1 5", "-ERR SLOTS parameter already specified"),
        ("1 -1", range),
        ("1 16384", range),
        ("1 abc", range),
        ("1 8192", "-ERR slot 8192 not handled by this node"),
        ("0", "-ERR SLOTS count must be between 1 and 16384"),
    ] {
        assert_eq!(ask(&format!("{start} {words}")), error, "{words}");
    }
    assert_eq!(ask("HOTKEYS START METRICS 1 NET SAMPLE 2 SLOTS 6 10 5 1 0 6 2"), "+OK");
    ask("HOTKEYS STOP");
    let found = tracked(&mut client);
    let slots = show(field(&found, "selected-slots").unwrap());
    assert_eq!(slots, "[[:0 :2] [:5 :6] [:10]]");
    assert_eq!(number(&found, "sampled-commands-selected-slots-us"), 0);
    client.ask("HOTKEYS RESET");
    let slot = |client: &mut Client, key: &str| {
        client.ask(&format!("CLUSTER KEYSLOT {key}")).as_integer().unwrap()
    };
    let mine: Vec<String> =
        (0..40).map(|n| format!("k{n}")).filter(|key| slot(&mut client, key) < 8192).collect();
    let only = slot(&mut client, &mine[0]);
    wait_until("the cluster is whole enough", || {
        client.ask("CONFIG SET cluster-require-full-coverage no");
        show(&client.ask(&format!("SET {} v", mine[0]))) == "+OK"
    });
    client.ask(&format!("HOTKEYS START METRICS 2 NET WRITES SLOTS 1 {only}"));
    mine.iter().for_each(|key| assert_eq!(show(&client.ask(&format!("SET {key} v"))), "+OK"));
    let found = tracked(&mut client);
    assert_eq!(keys(&found, "by-writes"), [(mine[0].clone(), 1)]);
    let (all, selected) =
        ("net-bytes-all-commands-all-slots", "net-bytes-all-commands-selected-slots");
    assert!(number(&found, all) > number(&found, selected));
}

#[test]
fn what_is_wrong_with_a_call_is_said() {
    let metrics = "-ERR METRICS count must be > 0 and <= 4";
    let count = "-ERR COUNT must be between 1 and 64";
    check_ours(
        &[],
        &[
            (
                "HOTKEYS START; HOTKEYS START COUNT 1; HOTKEYS START METRICS 0 CPU; \
                 HOTKEYS START METRICS -1; HOTKEYS START METRICS 9 CPU",
                &format!(
                    "-ERR METRICS parameter is required; -ERR METRICS parameter is required; \
                     {metrics}; {metrics}; {metrics}"
                ),
            ),
            (
                "HOTKEYS START METRICS 2 CPU; HOTKEYS START METRICS 1 CPU NET; \
                 HOTKEYS START METRICS 1 GPU; HOTKEYS START METRICS 2 CPU CPU; \
                 HOTKEYS START METRICS 2 NET NET",
                "-ERR METRICS count does not match number of metric types provided; \
                 -ERR syntax error; \
                 -ERR METRICS no valid metrics passed. Supported: CPU|NET; \
                 -ERR METRICS CPU defined more than once!; \
                 -ERR METRICS NET defined more than once!",
            ),
            (
                "HOTKEYS START METRICS 1 CPU COUNT 0; HOTKEYS START METRICS 1 CPU COUNT 65; \
                 HOTKEYS START METRICS 1 CPU DURATION 0; HOTKEYS START METRICS 1 CPU SAMPLE 0; \
                 HOTKEYS START METRICS 1 CPU SLOTS 1 0; HOTKEYS START METRICS 1 CPU COUNT",
                &format!(
                    "{count}; {count}; -ERR DURATION must be between 1 and 1000000; \
                     -ERR SAMPLE ratio must be positive; \
                     -ERR SLOTS parameter cannot be used in non-cluster mode; -ERR syntax error"
                ),
            ),
            // Words of metrics that are to come are passed over.
            ("HOTKEYS START METRICS 2 GPU CPU; HOTKEYS STOP; HOTKEYS RESET", "+OK; +OK; +OK"),
            (
                "CONFIG SET hotkeys-sample 1; HOTKEYS LIST BY size; HOTKEYS LIST COUNT 0; \
                 HOTKEYS LIST COUNT; CONFIG SET hotkeys-sample -1",
                "+OK; -ERR syntax error; -ERR COUNT must be between 1 and 1024; \
                 -ERR syntax error; \
                 -ERR CONFIG SET failed (possibly related to argument 'hotkeys-sample') - \
                 argument must be between 0 and 1000000 inclusive",
            ),
        ],
    );
}

/// Names are told to who may read the keys, in the databases that are his.
#[test]
fn keys_are_told_to_who_may_read_them() {
    each_backend(&["--hotkeys-sample", "1"], |server| {
        let mut client = server.connect();
        client.ask("ACL SETUSER guest on nopass ~open:* resetdbs db=0 +@connection +hotkeys");
        client.ask("ACL SETUSER reader on nopass %R~open:* %W~secret:* +@connection +hotkeys");
        client.ask("HOTKEYS START METRICS 1 WRITES");
        let long = "open:".to_owned() + &"x".repeat(2000);
        wait_until("calls are counted", || {
            client.ask(&format!("MSET open:1 1 open:2 1 secret:1 1 {long} 1"));
            client.ask("SELECT 5");
            client.ask("SET open:other 1");
            client.ask("SELECT 0");
            listed(&mut client, "COUNT 20").len() == 5
        });
        let names = |client: &mut Client| {
            let mut names: Vec<String> =
                listed(client, "COUNT 20").into_iter().map(|(name, _)| name).collect();
            names.sort_unstable();
            let found = tracked(client);
            let mut tracked: Vec<String> =
                keys(&found, "by-writes").into_iter().map(|(name, _)| name).collect();
            tracked.sort_unstable();
            assert_eq!(tracked, names);
            names
        };
        assert_eq!(names(&mut client).len(), 5);
        let [mut guest, mut reader] = ["guest", "reader"].map(|user| {
            let mut client = server.connect();
            client.ask(&format!("AUTH {user} x"));
            client
        });
        assert_eq!(names(&mut guest), ["open:1", "open:2"]);
        assert_eq!(names(&mut reader), ["open:1", "open:2", "open:other"]);
        let text = show(&guest.ask("HOTKEYS SLOTS"));
        assert_eq!(text, "-NOPERM No permissions to access database");
        assert!(matches!(reader.ask("HOTKEYS SLOTS"), Value::Array(_)));
    });
}
