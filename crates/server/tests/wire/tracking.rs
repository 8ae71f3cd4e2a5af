//! CLIENT TRACKING: caches at clients, here and at the oracles.

use crate::check::{check, show};
use crate::harness::{Client, Server, backends, each_backend, figure, wait_until};
use crate::talk::{talk, talk_as_valkey};

#[test]
fn options_must_agree() {
    let switch = "-ERR You can't switch BCAST mode on/off before disabling tracking for this \
                  client, and then re-enabling it with a different mode.";
    let opt = "-ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, \
               and then re-enabling it with a different mode.";
    check(&[
        (
            "CLIENT TRACKING; CLIENT TRACKING x; CLIENT TRACKING on x; CLIENT TRACKING on PREFIX; \
             CLIENT TRACKING on REDIRECT; CLIENT TRACKING on REDIRECT x; \
             CLIENT TRACKING on REDIRECT 1000000; CLIENT TRACKING on PREFIX a; \
             CLIENT TRACKING on OPTIN OPTOUT; CLIENT TRACKING on BCAST OPTIN; \
             CLIENT TRACKING off x",
            "-ERR wrong number of arguments for 'client|tracking' command; -ERR syntax error; \
             -ERR syntax error; -ERR syntax error; -ERR syntax error; \
             -ERR value is not an integer or out of range; \
             -ERR The client ID you want redirect to does not exist; \
             -ERR PREFIX option requires BCAST mode to be enabled; \
             -ERR You can't specify both OPTIN mode and OPTOUT mode; \
             -ERR OPTIN and OPTOUT are not compatible with BCAST; -ERR syntax error",
        ),
        (
            "CLIENT TRACKING on; CLIENT TRACKING on BCAST; CLIENT TRACKING on OPTIN; \
             CLIENT TRACKING on OPTOUT; CLIENT TRACKING off; CLIENT TRACKING on OPTOUT; \
             CLIENT TRACKING on",
            &format!("+OK; {switch}; +OK; {opt}; +OK; +OK; +OK"),
        ),
        (
            "CLIENT TRACKING on BCAST PREFIX ab PREFIX ac; CLIENT TRACKING on BCAST PREFIX abc; \
             CLIENT TRACKING on BCAST PREFIX x PREFIX xy; CLIENT TRACKING on BCAST; \
             CLIENT TRACKING on BCAST PREFIX b; CLIENT TRACKINGINFO",
            "+OK; -ERR Prefix 'abc' overlaps with an existing prefix 'ab'. Prefixes for a single \
             client must not overlap.; -ERR Prefix 'x' overlaps with another provided prefix 'xy'. \
             Prefixes for a single client must not overlap.; +OK; -ERR Prefix 'b' overlaps with an \
             existing prefix ''. Prefixes for a single client must not overlap.; [$flags [$on \
             $bcast] $redirect :0 $prefixes [$ $ab $ac]]",
        ),
        (
            "CLIENT CACHING yes; CLIENT TRACKING on; CLIENT CACHING yes; CLIENT CACHING x; \
             CLIENT GETREDIR; CLIENT TRACKING off; CLIENT GETREDIR; CLIENT TRACKING on OPTIN; \
             CLIENT CACHING no; CLIENT CACHING yes; CLIENT TRACKINGINFO; PING; CLIENT TRACKINGINFO",
            "-ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN \
             or OPTOUT mode enabled; +OK; -ERR CLIENT CACHING YES is only valid when tracking is \
             enabled in OPTIN mode.; -ERR syntax error; :0; +OK; :-1; +OK; -ERR CLIENT CACHING NO \
             is only valid when tracking is enabled in OPTOUT mode.; +OK; [$flags [$on $optin \
             $caching-yes] $redirect :0 $prefixes []]; +PONG; [$flags [$on $optin] $redirect :0 \
             $prefixes []]",
        ),
    ]);
}

#[test]
fn how_a_client_tracks() {
    talk(&[
        ("a3: CLIENT TRACKINGINFO", "a3 {$flags ~[$off] $redirect :-1 $prefixes []}"),
        ("a3: CLIENT TRACKING on NOLOOP OPTOUT", "a3 +OK"),
        ("a3: CLIENT CACHING no", "a3 +OK"),
        (
            "a3: CLIENT TRACKINGINFO",
            "a3 {$flags ~[$on $optout $caching-no $noloop] $redirect :0 $prefixes []}",
        ),
        ("a3: RESET", "a3 +RESET"),
        ("a3: CLIENT TRACKINGINFO", "a3 [$flags [$off] $redirect :-1 $prefixes []]"),
    ]);
}

#[test]
fn a_key_that_was_read_is_told_once() {
    talk(&[
        ("a3: CLIENT TRACKING on", "a3 +OK"),
        ("b: SET k 1", "b +OK"),
        ("a3: GET k", "a3 $1"),
        ("a3: MGET k l", "a3 [$1 _]"),
        ("b: SET k 2", "b +OK; a3 >[$invalidate [$k]]"),
        ("b: SET k 3", "b +OK"),
        ("b: RPUSH l x", "b :1; a3 >[$invalidate [$l]]"),
        // Another database has the same keys, as far as caches go.
        ("a3: GET k", "a3 $3"),
        ("b: SELECT 1", "b +OK"),
        ("b: SET k x", "b +OK; a3 >[$invalidate [$k]]"),
        ("a3: GET k", "a3 $3"),
        ("a3: CLIENT TRACKING off", "a3 +OK"),
        ("b: SET k y", "b +OK"),
    ]);
}

#[test]
fn own_writes_are_told_behind_their_replies() {
    talk(&[
        ("a3: CLIENT TRACKING on", "a3 +OK"),
        ("a3: GET k", "a3 _"),
        ("a3: SET k 1", "a3 +OK; a3 >[$invalidate [$k]]"),
        ("a3: MGET k l", "a3 [$1 _]"),
        ("a3: MULTI", "a3 +OK"),
        ("a3: SET k 2", "a3 +QUEUED"),
        ("a3: SET l 2", "a3 +QUEUED"),
        ("a3: EXEC", "a3 [+OK +OK]; a3 >[$invalidate [$k]]; a3 >[$invalidate [$l]]"),
        ("a3: CLIENT TRACKING on NOLOOP", "a3 +OK"),
        ("a3: GET k", "a3 $2"),
        ("a3: SET k 3", "a3 +OK"),
        // It was the only reader, and knows.
        ("b: SET k 4", "b +OK"),
        ("a3: GET k", "a3 $4"),
        ("b: SET k 5", "b +OK; a3 >[$invalidate [$k]]"),
    ]);
}

#[test]
fn keys_of_transactions_and_scripts_are_tracked() {
    talk(&[
        ("a3: CLIENT TRACKING on", "a3 +OK"),
        ("a3: MULTI", "a3 +OK"),
        ("a3: GET m", "a3 +QUEUED"),
        ("a3: EXEC", "a3 [_]"),
        ("b: SET m 1", "b +OK; a3 >[$invalidate [$m]]"),
        ("a3: EVAL \"return redis.call('get', KEYS[1])\" 1 s", "a3 _"),
        ("b: SET s 1", "b +OK; a3 >[$invalidate [$s]]"),
        ("a3: GET s", "a3 $1"),
        ("a3: EVAL \"return redis.call('set', KEYS[1], 2)\" 1 s", "a3 +OK; a3 >[$invalidate [$s]]"),
    ]);
}

/// Redis 7.0 lists the client for the keys that a read-only script declares.
#[test]
fn of_a_script_what_it_reads_counts() {
    talk_as_valkey(&[
        ("a3: CLIENT TRACKING on", "a3 +OK"),
        ("a3: EVAL_RO \"return redis.call('get', 't')\" 1 u", "a3 _"),
        ("b: MSET t 1 u 1", "b +OK; a3 >[$invalidate [$t]]"),
    ]);
}

#[test]
fn clients_choose_what_they_cache() {
    talk(&[
        ("a3: CLIENT TRACKING on OPTIN", "a3 +OK"),
        ("a3: GET k", "a3 _"),
        ("b: SET k 1", "b +OK"),
        ("a3: CLIENT CACHING yes", "a3 +OK"),
        ("a3: GET k", "a3 $1"),
        ("a3: GET l", "a3 _"),
        ("b: MSET k 2 l 2", "b +OK; a3 >[$invalidate [$k]]"),
        ("a3: CLIENT CACHING yes", "a3 +OK"),
        ("a3: MULTI", "a3 +OK"),
        ("a3: GET k", "a3 +QUEUED"),
        ("a3: GET l", "a3 +QUEUED"),
        ("a3: EXEC", "a3 [$2 $2]"),
        ("b: MSET k 3 l 3", "b +OK; a3 >[$invalidate [$k]]; a3 >[$invalidate [$l]]"),
        ("c3: CLIENT TRACKING on OPTOUT", "c3 +OK"),
        ("c3: CLIENT CACHING no", "c3 +OK"),
        ("c3: GET k", "c3 $3"),
        ("c3: GET l", "c3 $3"),
        ("b: MSET k 4 l 4", "b +OK; c3 >[$invalidate [$l]]"),
    ]);
}

#[test]
fn prefixes_are_told_without_reading() {
    talk(&[
        ("a3: CLIENT TRACKING on BCAST PREFIX u: PREFIX v:", "a3 +OK"),
        ("c3: CLIENT TRACKING on BCAST NOLOOP", "c3 +OK"),
        (
            "b: MSET u:1 x w:1 x v:1 x",
            "b +OK; a3 >[$invalidate [$u:1]]; a3 >[$invalidate [$v:1]]; \
          c3 >[$invalidate [$u:1 $v:1 $w:1]]",
        ),
        ("c3: SET u:2 x", "c3 +OK; a3 >[$invalidate [$u:2]]"),
        ("a3: SET u:3 x", "a3 +OK; a3 >[$invalidate [$u:3]]; c3 >[$invalidate [$u:3]]"),
        ("b: GET u:1", "b $x"),
        ("b: DEL nokey", "b :0"),
    ]);
}

#[test]
fn flushing_tells_everybody() {
    talk(&[
        ("a3: CLIENT TRACKING on", "a3 +OK"),
        ("c3: CLIENT TRACKING on BCAST PREFIX x", "c3 +OK"),
        ("a3: GET k", "a3 _"),
        ("b: FLUSHALL", "b +OK; a3 >[$invalidate _]; c3 >[$invalidate _]"),
        ("b: SET k 1", "b +OK"),
        ("a3: FLUSHDB", "a3 +OK; a3 >[$invalidate _]; c3 >[$invalidate _]"),
    ]);
}

/// The ids of clients differ between servers, so the redirection cannot be written down.
#[test]
fn another_client_is_told() {
    let servers = backends().into_iter().map(|backend| Server::kvasir(backend, &[]));
    for server in servers.chain(Server::redis(&[])).chain(Server::valkey(&[])) {
        let (mut data, mut other, mut writer) =
            (server.connect(), server.connect(), server.connect());
        let id = other.ask("CLIENT ID").as_integer().unwrap();
        other.ask("SUBSCRIBE __redis__:invalidate");
        assert_eq!(show(&data.ask(&format!("CLIENT TRACKING on REDIRECT {id}"))), "+OK");
        assert_eq!(data.ask("CLIENT GETREDIR").as_integer(), Some(id));
        let line = data.ask_text("CLIENT INFO");
        assert!(line.contains(&format!(" redir={id} ")) && line.contains(" flags=tU "), "{line}");
        data.ask("GET k");
        writer.ask("SET k 1");
        let told = |client: &mut Client| show(&client.read_reply().unwrap());
        assert_eq!(told(&mut other), "[$message $__redis__:invalidate [$k]]", "{}", server.name);
        writer.ask("FLUSHALL");
        assert_eq!(told(&mut other), "[$message $__redis__:invalidate _]", "{}", server.name);
        other.ask("UNSUBSCRIBE");
        data.ask("GET k");
        writer.ask("SET k 2");
        assert_eq!(show(&other.ask("PING")), "+PONG", "{}: who does not listen", server.name);
        drop(other);
        wait_until("it has gone", || writer.ask_text(&format!("CLIENT LIST ID {id}")).is_empty());
        data.ask("HELLO 3");
        data.ask("GET k");
        writer.ask("SET k 3");
        assert_eq!(told(&mut data), format!(">[$tracking-redir-broken :{id}]"), "{}", server.name);
        let line = data.ask_text("CLIENT INFO");
        assert!(line.contains(" flags=tRU "), "{}: {line}", server.name);
        let info = show(&data.ask("CLIENT TRACKINGINFO"));
        let expected = format!("{{$flags ~[$on $broken_redirect] $redirect :{id} $prefixes []}}");
        assert_eq!(info, expected, "{}", server.name);
    }
}

#[test]
fn what_expires_or_is_evicted_is_told() {
    talk(&[
        ("a3: CLIENT TRACKING on", "a3 +OK"),
        ("b: SET k 1 PX 1", "b +OK"),
        ("b: SET l 1 PX 40", "b +OK"),
        ("a3: GET l", "a3 $1"),
        ("b: DEBUG SLEEP 0.1", "b +OK"),
        ("b: EXISTS l", "b :0; a3 >[$invalidate [$l]]"),
    ]);
}

#[test]
fn a_read_that_finds_its_key_expired_is_told_and_tracked() {
    talk(&[
        ("a3: CLIENT TRACKING on", "a3 +OK"),
        ("b: DEBUG SET-ACTIVE-EXPIRE 0", "b +OK"),
        ("b: SET k 1 PX 40", "b +OK"),
        ("a3: GET k", "a3 $1"),
        ("b: DEBUG SLEEP 0.1", "b +OK"),
        ("a3: GET k", "a3 _; a3 >[$invalidate [$k]]"),
        ("b: SET k 2", "b +OK; a3 >[$invalidate [$k]]"),
    ]);
}

#[test]
fn the_table_has_a_limit() {
    each_backend(&["--tracking-table-max-keys", "2", "--io-threads", "4"], |server| {
        let (mut reader, mut other) = (server.connect(), server.connect());
        reader.ask("HELLO 3");
        reader.ask("CLIENT TRACKING on");
        reader.ask("MGET a b");
        let info = other.ask_text("INFO");
        for line in ["tracking_clients:1", "tracking_total_keys:2", "tracking_total_items:2"] {
            assert!(info.contains(line), "{line}");
        }
        assert_eq!(show(&reader.ask("GET c")), "_");
        let told = show(&reader.read_reply().unwrap());
        assert!([">[$invalidate [$a]]", ">[$invalidate [$b]]"].contains(&told.as_str()), "{told}");
        assert!(other.ask_text("INFO stats").contains("tracking_total_keys:2\r\n"));
        reader.ask("CLIENT TRACKING off");
        assert!(other.ask_text("INFO clients").contains("tracking_clients:0\r\n"));
    });
}

/// A cache that drops what it is told of never keeps an old value for good, however many workers
/// write and read at the same time.
#[test]
fn no_cache_keeps_what_is_old() {
    const ROUNDS: usize = 2000;
    let server = Server::kvasir("epoll", &["--io-threads", "4"]);
    let mut reader = server.connect();
    reader.ask("HELLO 3");
    reader.ask("CLIENT TRACKING on");
    let socket = server.socket();
    let writers: Vec<_> = (0..3)
        .map(|_| {
            let socket = socket.clone();
            std::thread::spawn(move || {
                let mut writer = Client::connect(&socket);
                (0..ROUNDS).for_each(|_| drop(writer.ask("INCR k")));
            })
        })
        .collect();
    let mut cached = None;
    while cached.as_deref() != Some(format!("${}", 3 * ROUNDS).as_str()) {
        reader.send(&["GET", "k"]);
        // What was told of before the reply, the reply knows already.
        loop {
            match show(&reader.read_reply().unwrap()) {
                told if told.starts_with('>') => {}
                value => {
                    cached = Some(value);
                    break;
                }
            }
        }
        // With a cached value the reader asks nothing until it is told.
        while cached.is_some() && cached.as_deref() != Some(format!("${}", 3 * ROUNDS).as_str()) {
            let told = show(&reader.read_reply().expect("an old value is told of"));
            assert_eq!(told, ">[$invalidate [$k]]");
            cached = None;
        }
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
}

#[test]
fn eviction_is_told() {
    talk_as_valkey(&[
        ("a3: CLIENT TRACKING on", "a3 +OK"),
        ("b: SET k 1", "b +OK"),
        ("a3: GET k", "a3 $1"),
        ("b: CONFIG SET maxmemory-policy allkeys-lru maxmemory 1", "b +OK; a3 >[$invalidate [$k]]"),
    ]);
}

#[test]
fn a_lower_limit_counts_for_keys_that_are_listed_already() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        client.ask("HELLO 3");
        client.ask("CLIENT TRACKING on");
        (0..50).for_each(|number| drop(client.ask(&format!("GET key{number}"))));
        let mut other = server.connect();
        assert_eq!(figure(&mut other, "stats", "tracking_total_keys"), 50);
        other.ask("CONFIG SET tracking-table-max-keys 10");
        assert_eq!(figure(&mut other, "stats", "tracking_total_keys"), 10);
    });
}
