//! Pub/Sub as clients see it, beside both oracles.

use crate::check::{check, run_script};
use crate::harness::{each_backend, wait_until};
use crate::talk::{hold, talk, talk_as_valkey};

#[test]
fn subscribing_is_confirmed_and_counted() {
    for (client, open, null) in [("a", "a [", "_"), ("a3", "a3 >[", "_")] {
        let says = |text: &str| text.replace("a [", open).replace("a:", &format!("{client}:"));
        let steps = [
            (
                "a: SUBSCRIBE x y x",
                "a [$subscribe $x :1]; a [$subscribe $y :2]; a [$subscribe $x :2]",
            ),
            ("a: PSUBSCRIBE p* q*", "a [$psubscribe $p* :3]; a [$psubscribe $q* :4]"),
            ("a: SSUBSCRIBE s x", "a [$ssubscribe $s :1]; a [$ssubscribe $x :2]"),
            ("a: UNSUBSCRIBE x z", "a [$unsubscribe $x :3]; a [$unsubscribe $z :3]"),
            ("a: PUNSUBSCRIBE q* y", "a [$punsubscribe $q* :2]; a [$punsubscribe $y :2]"),
            ("a: SUNSUBSCRIBE s y", "a [$sunsubscribe $s :1]; a [$sunsubscribe $y :1]"),
            ("a: UNSUBSCRIBE", "a [$unsubscribe $y :1]"),
            ("a: UNSUBSCRIBE", &format!("a [$unsubscribe {null} :1]")),
            ("a: PUNSUBSCRIBE", "a [$punsubscribe $p* :0]"),
            ("a: PUNSUBSCRIBE", &format!("a [$punsubscribe {null} :0]")),
            ("a: SUNSUBSCRIBE", "a [$sunsubscribe $x :0]"),
            ("a: SUNSUBSCRIBE", &format!("a [$sunsubscribe {null} :0]")),
        ];
        let steps: Vec<_> =
            steps.iter().map(|(call, replies)| (says(call), says(replies))).collect();
        let steps: Vec<_> = steps.iter().map(|(call, replies)| (&**call, &**replies)).collect();
        talk(&steps);
    }
}

#[test]
fn messages_reach_subscribers_of_channels_and_patterns() {
    talk(&[
        ("p: PUBLISH news nobody", "p :0"),
        ("a: SUBSCRIBE news", "a [$subscribe $news :1]"),
        ("b3: SUBSCRIBE news", "b3 >[$subscribe $news :1]"),
        ("c: PSUBSCRIBE n*", "c [$psubscribe $n* :1]"),
        ("d3: PSUBSCRIBE ?ews", "d3 >[$psubscribe $?ews :1]"),
        ("d3: SUBSCRIBE news", "d3 >[$subscribe $news :2]"),
        (
            "p: PUBLISH news one",
            "p :5; a [$message $news $one]; b3 >[$message $news $one]; \
             c [$pmessage $n* $news $one]; d3 >[$message $news $one]; \
             d3 >[$pmessage $?ews $news $one]",
        ),
        ("p: PUBLISH nothing two", "p :1; c [$pmessage $n* $nothing $two]"),
        ("p: PUBLISH other three", "p :0"),
        (
            "p: PUBLISH news \"\"",
            "p :5; a [$message $news $]; b3 >[$message $news $]; c [$pmessage $n* $news $]; \
             d3 >[$message $news $]; d3 >[$pmessage $?ews $news $]",
        ),
        ("a: UNSUBSCRIBE news", "a [$unsubscribe $news :0]"),
        ("d3: PUNSUBSCRIBE", "d3 >[$punsubscribe $?ews :1]"),
        (
            "p: PUBLISH news five",
            "p :3; b3 >[$message $news $five]; c [$pmessage $n* $news $five]; \
             d3 >[$message $news $five]",
        ),
    ]);
}

#[test]
fn shard_channels_are_a_world_of_their_own() {
    talk(&[
        ("a: SSUBSCRIBE s", "a [$ssubscribe $s :1]"),
        ("b: SUBSCRIBE s", "b [$subscribe $s :1]"),
        ("c: PSUBSCRIBE *", "c [$psubscribe $* :1]"),
        ("p: SPUBLISH s one", "p :1; a [$smessage $s $one]"),
        ("p: PUBLISH s two", "p :2; b [$message $s $two]; c [$pmessage $* $s $two]"),
        ("p: SPUBLISH none one", "p :0"),
    ]);
}

#[test]
fn a_long_message_arrives_whole() {
    let long = "x".repeat(100_000);
    talk(&[
        ("a: SUBSCRIBE c", "a [$subscribe $c :1]"),
        ("b3: PSUBSCRIBE c", "b3 >[$psubscribe $c :1]"),
        (
            &format!("p: PUBLISH c {long}"),
            &format!("p :2; a [$message $c ${long}]; b3 >[$pmessage $c $c ${long}]"),
        ),
    ]);
}

const REFUSED: &str = "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
                       this context";

/// In RESP2 a client cannot tell a message from a reply.
#[test]
fn a_subscriber_of_resp2_may_call_little_else() {
    talk(&[
        ("a: SUBSCRIBE c", "a [$subscribe $c :1]"),
        ("a: PING", "a [$pong $]"),
        ("a: PING hello", "a [$pong $hello]"),
        ("a: PING a b", "a -ERR wrong number of arguments for 'ping' command"),
        ("a: GET k", &format!("a -ERR Can't execute 'get': {REFUSED}")),
        ("a: CLIENT INFO", &format!("a -ERR Can't execute 'client|info': {REFUSED}")),
        ("a: PUBLISH c m", &format!("a -ERR Can't execute 'publish': {REFUSED}")),
        ("a: MULTI", &format!("a -ERR Can't execute 'multi': {REFUSED}")),
        (
            "a: EXEC",
            &format!(
                "a -EXECABORT Transaction discarded because of: Can't execute 'exec': {REFUSED}"
            ),
        ),
        ("a: HELLO 3", &format!("a -ERR Can't execute 'hello': {REFUSED}")),
        ("a: NOSUCH", "a -ERR unknown command 'NOSUCH', with args beginning with: "),
        ("a: GET", "a -ERR wrong number of arguments for 'get' command"),
        ("a: UNSUBSCRIBE", "a [$unsubscribe $c :0]"),
        ("a: PING", "a +PONG"),
        ("a: SSUBSCRIBE c", "a [$ssubscribe $c :1]"),
        ("a: ECHO x", &format!("a -ERR Can't execute 'echo': {REFUSED}")),
        ("a: RESET", "a +RESET"),
        ("p: SPUBLISH c m", "p :0"),
        ("a: ECHO x", "a $x"),
        ("a: PSUBSCRIBE c*", "a [$psubscribe $c* :1]"),
        ("a: QUIT", "a +OK; a !"),
    ]);
}

#[test]
fn a_subscriber_of_resp3_may_call_anything() {
    talk_as_valkey(&[
        ("a3: SUBSCRIBE c", "a3 >[$subscribe $c :1]"),
        ("a3: PING", "a3 +PONG"),
        ("a3: SET k v", "a3 +OK"),
        // What it publishes itself follows the reply.
        ("a3: PUBLISH c m", "a3 :1; a3 >[$message $c $m]"),
        ("a3: PSUBSCRIBE *", "a3 >[$psubscribe $* :2]"),
        ("a3: PUBLISH c m", "a3 :2; a3 >[$message $c $m]; a3 >[$pmessage $* $c $m]"),
        ("p: PUBLISH c n", "p :2; a3 >[$message $c $n]; a3 >[$pmessage $* $c $n]"),
        ("a3: RESET", "a3 +RESET"),
        ("p: PUBLISH c o", "p :0"),
    ]);
}

#[test]
fn transactions_subscribe_and_publish() {
    let queued = |call: &'static str| (call, "a3 +QUEUED");
    talk_as_valkey(&[
        ("a3: MULTI", "a3 +OK"),
        queued("a3: SUBSCRIBE c d"),
        queued("a3: PUBLISH c m"),
        queued("a3: ECHO x"),
        queued("a3: UNSUBSCRIBE c"),
        queued("a3: PUBLISH c n"),
        (
            "a3: EXEC",
            "a3 [>[$subscribe $c :1] >[$subscribe $d :2] :1 $x >[$unsubscribe $c :1]]; a3 :0; \
             a3 >[$message $c $m]",
        ),
        ("p: PUBLISH d o", "p :1; a3 >[$message $d $o]"),
    ]);
    talk(&[
        ("a: MULTI", "a +OK"),
        ("a: SUBSCRIBE c", "a +QUEUED"),
        ("a: GET nosuch", "a +QUEUED"),
        ("a: EXEC", "a [[$subscribe $c :1] _]"),
        ("a: GET nosuch", &format!("a -ERR Can't execute 'get': {REFUSED}")),
    ]);
}

#[test]
fn scripts_publish() {
    talk_as_valkey(&[
        ("a3: SUBSCRIBE c", "a3 >[$subscribe $c :1]"),
        ("p: EVAL \"return redis.call('publish', 'c', 'm')\" 0", "p :1; a3 >[$message $c $m]"),
        ("a3: EVAL \"return redis.call('publish', 'c', 'm')\" 0", "a3 :1; a3 >[$message $c $m]"),
    ]);
}

/// Its worker serves the others meanwhile, and gives it its own message when the script has ended.
#[test]
fn a_busy_script_publishes_to_its_own_client_too() {
    let script = "redis.call('publish', 'c', 'm') local function now() local t = \
                  redis.call('time') return t[1] * 1000000 + t[2] end local start = now() while \
                  now() < start + 200000 do end return redis.call('publish', 'c', 'n')";
    each_backend(&["--io-threads", "1", "--busy-reply-threshold", "20"], |server| {
        hold(
            server,
            &[
                ("a3: SUBSCRIBE c", "a3 >[$subscribe $c :1]"),
                ("b: SUBSCRIBE c", "b [$subscribe $c :1]"),
                (
                    &format!("a3: EVAL \"{script}\" 0"),
                    "b [$message $c $m]; b [$message $c $n]; a3 :2; a3 >[$message $c $m]; \
                     a3 >[$message $c $n]",
                ),
            ],
        );
    });
}

#[test]
fn messages_come_although_replies_are_off() {
    talk(&[
        ("a3: CLIENT REPLY OFF", ""),
        ("a3: SUBSCRIBE c", "a3 >[$subscribe $c :1]"),
        ("a3: ECHO x", ""),
        ("a3: SUBSCRIBE", ""),
        ("a3: PUBLISH c m", "a3 >[$message $c $m]"),
        ("p: PUBLISH c n", "p :1; a3 >[$message $c $n]"),
        ("a3: UNSUBSCRIBE", "a3 >[$unsubscribe $c :0]"),
        ("a3: CLIENT REPLY ON", "a3 +OK"),
        ("a3: CLIENT REPLY SKIP", ""),
        ("a3: SUBSCRIBE c", "a3 >[$subscribe $c :1]"),
        ("a3: ECHO x", "a3 $x"),
    ]);
}

#[test]
fn what_is_known_of_channels() {
    talk(&[
        ("a: SUBSCRIBE news", "a [$subscribe $news :1]"),
        ("b: SUBSCRIBE news", "b [$subscribe $news :1]"),
        ("b: PSUBSCRIBE n* o*", "b [$psubscribe $n* :2]; b [$psubscribe $o* :3]"),
        ("c: PSUBSCRIBE n*", "c [$psubscribe $n* :1]"),
        ("c: SSUBSCRIBE shard", "c [$ssubscribe $shard :1]"),
        ("p: PUBSUB CHANNELS", "p [$news]"),
        ("p: PUBSUB CHANNELS n?ws", "p [$news]"),
        ("p: PUBSUB channels o*", "p []"),
        ("p: PUBSUB NUMSUB", "p []"),
        ("p: PUBSUB NUMSUB none news", "p [$none :0 $news :2]"),
        ("p3: PUBSUB NUMSUB news", "p3 [$news :2]"),
        ("p: PUBSUB NUMPAT", "p :2"),
        ("p: PUBSUB SHARDCHANNELS", "p [$shard]"),
        ("p: PUBSUB SHARDCHANNELS x", "p []"),
        ("p: PUBSUB SHARDNUMSUB news shard", "p [$news :0 $shard :1]"),
        ("b: RESET", "b +RESET"),
        ("p: PUBSUB NUMSUB news", "p [$news :1]"),
        ("p: PUBSUB NUMPAT", "p :1"),
        ("a: UNSUBSCRIBE", "a [$unsubscribe $news :0]"),
        ("p: PUBSUB CHANNELS", "p []"),
    ]);
}

#[test]
fn errors() {
    let arity = |name: &str| format!("-ERR wrong number of arguments for '{name}' command");
    for name in ["subscribe", "psubscribe", "ssubscribe", "publish", "spublish", "pubsub"] {
        check(&[(name, &arity(name))]);
    }
    check(&[
        ("PUBLISH c", &arity("publish")),
        ("PUBLISH c m n", &arity("publish")),
        (
            "PUBSUB NUMPAT x; PUBSUB HELP x",
            &format!("{}; {}", arity("pubsub|numpat"), arity("pubsub|help")),
        ),
        ("PUBSUB nosuch", "-ERR unknown subcommand 'nosuch'. Try PUBSUB HELP."),
        (
            "PUBSUB CHANNELS a b; PUBSUB shardchannels a b",
            "-ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB \
             HELP.; -ERR unknown subcommand or wrong number of arguments for 'shardchannels'. Try \
             PUBSUB HELP.",
        ),
    ]);
}

#[test]
fn a_subscriber_is_known_as_one() {
    each_backend(&["--timeout", "1"], |server| {
        let (mut subscriber, mut other) = (server.connect(), server.connect());
        assert_eq!(run_script(&mut subscriber, "PSUBSCRIBE a*"), "[$psubscribe $a* :1]");
        for call in ["SUBSCRIBE a", "SUBSCRIBE b", "SSUBSCRIBE s"] {
            subscriber.ask(call);
        }
        let list = other.ask_text("CLIENT LIST TYPE pubsub");
        assert!(list.contains(" flags=PU ") && list.contains(" sub=2 psub=1 ssub=1 "), "{list}");
        assert_eq!(list.lines().count(), 1);
        assert_eq!(other.ask_text("CLIENT LIST TYPE normal").lines().count(), 1);
        let info = other.ask_text("INFO stats");
        for line in ["pubsub_channels:2", "pubsub_patterns:1", "pubsubshard_channels:1"] {
            assert!(info.contains(&format!("\r\n{line}\r\n")), "{line}");
        }
        // Silence does not end it, as it ends others.
        let mut silent = server.connect();
        silent.ask("PING");
        assert!(silent.ends());
        let mut other = server.connect();
        assert_eq!(other.ask("PUBLISH b m").as_integer(), Some(1));
        assert_eq!(crate::check::show(&subscriber.read_reply().unwrap()), "[$message $b $m]");
        assert_eq!(other.ask("CLIENT KILL TYPE pubsub").as_integer(), Some(1));
        assert!(subscriber.ends());
        wait_until("it is forgotten", || {
            let left = "PUBSUB CHANNELS; PUBSUB SHARDCHANNELS; PUBSUB NUMPAT";
            run_script(&mut other, left) == "[]; []; :0"
        });
    });
}
