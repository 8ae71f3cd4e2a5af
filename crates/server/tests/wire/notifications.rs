//! Keyspace notifications: the option, and events from calls, from expiry and from transactions.

use crate::blocking::wait_for;
use crate::check::{check, show};
use crate::harness::each_backend;
use crate::talk::{hold, talk, talk_as_valkey};

#[test]
fn the_option_is_printed_as_redis_does() {
    let get = "CONFIG GET notify-keyspace-events";
    let shown = |value: &str| format!("[$notify-keyspace-events ${value}]");
    for (given, printed) in [
        ("KEA", "AKE"),
        ("KEAn", "AKE"),
        ("KEAnm", "AKEm"),
        ("EKlg$", "g$lKE"),
        ("nEmK", "nKEm"),
        ("tezhslg$xd", "A"),
        ("tezhslg$x", "g$lshzxet"),
    ] {
        let script = format!("CONFIG SET notify-keyspace-events {given}; {get}");
        check(&[(&script, &format!("+OK; {}", shown(printed)))]);
    }
    check(&[(
        &format!(
            "{get}; CONFIG SET notify-keyspace-events Kq; CONFIG SET notify-keyspace-events \"\"; {get}"
        ),
        &format!(
            "{0}; -ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - \
             Invalid event class character. Use 'Ag$lshzxeKEtmdn'.; +OK; {0}",
            shown("")
        ),
    )]);
}

#[test]
fn an_event_goes_to_the_channel_of_its_key_and_to_its_own() {
    talk(&[
        ("p: CONFIG SET notify-keyspace-events KEA", "p +OK"),
        ("a: PSUBSCRIBE __key*", "a [$psubscribe $__key* :1]"),
        ("b: SUBSCRIBE __keyevent@0__:set", "b [$subscribe $__keyevent@0__:set :1]"),
        (
            "p: SET k v",
            "p +OK; a [$pmessage $__key* $__keyspace@0__:k $set]; \
             a [$pmessage $__key* $__keyevent@0__:set $k]; b [$message $__keyevent@0__:set $k]",
        ),
        ("p: SELECT 3", "p +OK"),
        (
            "p: SET k v",
            "p +OK; a [$pmessage $__key* $__keyspace@3__:k $set]; \
             a [$pmessage $__key* $__keyevent@3__:set $k]",
        ),
        ("p: GET k", "p $v"),
        ("p: CONFIG SET notify-keyspace-events K$", "p +OK"),
        ("p: SET k v", "p +OK; a [$pmessage $__key* $__keyspace@3__:k $set]"),
        ("p: CONFIG SET notify-keyspace-events Eg", "p +OK"),
        ("p: SET k v", "p +OK"),
        ("p: CONFIG SET notify-keyspace-events $", "p +OK"),
        ("p: SET k v", "p +OK"),
    ]);
}

#[test]
fn who_causes_an_event_gets_it_behind_the_reply() {
    talk_as_valkey(&[
        ("a3: CONFIG SET notify-keyspace-events E$", "a3 +OK"),
        ("a3: PSUBSCRIBE *", "a3 >[$psubscribe $* :1]"),
        ("a3: SET k v", "a3 +OK; a3 >[$pmessage $* $__keyevent@0__:set $k]"),
        ("a3: MULTI", "a3 +OK"),
        ("a3: SET k v", "a3 +QUEUED"),
        ("a3: PUBLISH c m", "a3 +QUEUED"),
        ("a3: SET l v", "a3 +QUEUED"),
        (
            "a3: EXEC",
            "a3 [+OK :1 +OK]; a3 >[$pmessage $* $__keyevent@0__:set $k]; \
             a3 >[$pmessage $* $c $m]; a3 >[$pmessage $* $__keyevent@0__:set $l]",
        ),
    ]);
}

#[test]
fn what_a_script_does_is_told_in_its_order() {
    let script = "redis.call('set', 'k', 'v') redis.call('publish', 'c', 'm') \
                  redis.call('del', 'k') return 1";
    talk(&[
        ("p: CONFIG SET notify-keyspace-events Eg$", "p +OK"),
        ("a: PSUBSCRIBE *", "a [$psubscribe $* :1]"),
        (
            &format!("p: EVAL \"{script}\" 1 k"),
            "p :1; a [$pmessage $* $__keyevent@0__:set $k]; a [$pmessage $* $c $m]; \
             a [$pmessage $* $__keyevent@0__:del $k]",
        ),
    ]);
}

/// First what made the key ready, then what the call that waited has done with it.
#[test]
fn a_call_that_waited_is_told_of_behind_the_one_that_served_it() {
    each_backend(&["--notify-keyspace-events", "Elg", "--io-threads", "4"], |server| {
        let (mut waiting, mut listener) = (server.connect(), server.connect());
        wait_for(server, &mut waiting, "BLPOP l 0");
        listener.ask("PSUBSCRIBE __keyevent*");
        server.connect().ask("RPUSH l v");
        for name in ["rpush", "lpop", "del"] {
            let expected = format!("[$pmessage $__keyevent* $__keyevent@0__:{name} $l]");
            assert_eq!(show(&listener.read_reply().expect("an event")), expected);
        }
    });
}

#[test]
fn a_key_whose_time_is_over_is_told_of_by_whoever_deletes_it() {
    const EXPIRED: &str = "a [$pmessage $__key* $__keyspace@0__:k $expired]; \
                           a [$pmessage $__key* $__keyevent@0__:expired $k]";
    let subscribe = [
        ("p: CONFIG SET notify-keyspace-events KEx", "p +OK"),
        ("a: PSUBSCRIBE __key*", "a [$psubscribe $__key* :1]"),
    ];
    // By the clock alone.
    talk(&[&subscribe[..], &[("p: SET k v PX 5", &format!("p +OK; {EXPIRED}"))]].concat());
    // By a call that comes upon it.
    each_backend(&[], |server| {
        server.connect().ask("DEBUG SET-ACTIVE-EXPIRE 0");
        let get = format!("p :0; {EXPIRED}");
        let steps =
            [("p: SET k v PX 1", "p +OK"), ("p: DEBUG SLEEP 0.01", "p +OK"), ("p: EXISTS k", &get)];
        hold(server, &[&subscribe[..], &steps].concat());
    });
}

/// Who stores nothing deletes what is there, whether or not its time is over.
#[test]
fn a_destination_that_has_expired_is_deleted_by_an_empty_result() {
    let calls = [
        "SUNIONSTORE d0 no",
        "SDIFFSTORE d1 no no",
        "SINTERSTORE d2 no no",
        "ZUNIONSTORE d3 1 no",
        "ZINTERSTORE d4 1 no",
        "ZDIFFSTORE d5 1 no",
        "ZRANGESTORE d6 no 0 -1",
        "BITOP AND d7 no no",
        "BITOP NOT d8 no",
        "SORT no STORE d9",
        "GEOSEARCHSTORE d10 no FROMLONLAT 1 1 BYRADIUS 1 km",
    ];
    let mut steps = vec![("p: DEBUG SET-ACTIVE-EXPIRE 0".to_owned(), "p +OK".to_owned())];
    let set = |number: usize| (format!("p: SET d{number} v PX 1000"), "p +OK".into());
    steps.extend((0..calls.len()).map(set));
    steps.extend([
        ("p: DEBUG SLEEP 1.1".into(), "p +OK".into()),
        ("p: CONFIG SET notify-keyspace-events Egx".into(), "p +OK".into()),
        ("a: PSUBSCRIBE *".into(), "a [$psubscribe $* :1]".into()),
    ]);
    for (number, call) in calls.iter().enumerate() {
        let told = format!("p :0; a [$pmessage $* $__keyevent@0__:del $d{number}]");
        steps.push((format!("p: {call}"), told));
        steps.push((format!("p: EXISTS d{number}"), "p :0".into()));
    }
    let steps: Vec<_> = steps.iter().map(|(call, reply)| (&call[..], &reply[..])).collect();
    talk(&steps);
}
