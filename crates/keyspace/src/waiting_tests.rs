//! Clients that wait for lists, and those who wake them.

use crate::effect::{Effect, call};
use crate::testing::Bench;
use crate::waiting::Nothing;
use kvasir_resp::reply::Protocol;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

const NO_GROUP: &str =
    "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option";

fn bench() -> Bench {
    Bench::new(Protocol::Resp2)
}

/// Runs calls that answer at once.
fn run(bench: &mut Bench, calls: &[&str]) {
    for call in calls {
        assert!(bench.call_for(0, call).is_ok(), "{call} waits");
    }
}

/// Has clients, counted from 1, make calls that wait.
fn wait(bench: &mut Bench, calls: &[&str]) {
    for (client, call) in (1..).zip(calls) {
        assert!(bench.call_for(client, call).is_err(), "{call} does not wait");
    }
}

/// Serves who waits; clients and replies in their order.
fn served(bench: &mut Bench) -> String {
    let served = bench.serve();
    served.iter().map(|(client, reply, _)| format!("{client} {reply}; ")).collect()
}

#[test]
fn first_come_first_served() {
    let mut bench = bench();
    wait(&mut bench, &["BLPOP l 0", "BRPOP l 0", "BLMPOP 0 1 l LEFT COUNT 2", "BLPOP l 0"]);
    run(&mut bench, &["RPUSH l a b c d"]);
    assert_eq!(served(&mut bench), "1 [$l $a]; 2 [$l $d]; 3 [$l [$b $c]]; ");
    assert_eq!(bench.waiting().count(), 1);
    run(&mut bench, &["RPUSH l e"]);
    assert_eq!(served(&mut bench), "4 [$l $e]; ");
    assert_eq!(bench.waiting().count(), 0);
    assert_eq!(bench.call_for(0, "EXISTS l").ok().as_deref(), Some(":0"));
}

#[test]
fn the_first_key_that_gets_an_element_answers() {
    let mut bench = bench();
    wait(&mut bench, &["BLPOP a b c 0", "BLPOP c b 0"]);
    run(&mut bench, &["RPUSH b 1"]);
    assert_eq!(served(&mut bench), "1 [$b $1]; ");
    run(&mut bench, &["RPUSH a 2"]);
    assert_eq!(served(&mut bench), "");
    run(&mut bench, &["RPUSH c 3", "RPUSH b 4"]);
    assert_eq!(served(&mut bench), "2 [$c $3]; ");
    assert_eq!(bench.call_for(0, "LRANGE b 0 -1").ok().as_deref(), Some("[$4]"));
}

#[test]
fn a_key_may_stand_in_a_call_twice() {
    let mut bench = bench();
    wait(&mut bench, &["BLPOP l m l 0", "BLPOP l l 0"]);
    run(&mut bench, &["RPUSH l a b c"]);
    assert_eq!(served(&mut bench), "1 [$l $a]; 2 [$l $b]; ");
    assert_eq!(bench.waiting().count(), 0);
    assert_eq!(bench.waiting().key_count(), 0);
}

#[test]
fn moves_wake_those_who_wait_for_the_destination() {
    let mut bench = bench();
    wait(&mut bench, &["BLMOVE a b LEFT RIGHT 0", "BRPOPLPUSH b c 0", "BLPOP c 0"]);
    run(&mut bench, &["RPUSH a x"]);
    assert_eq!(served(&mut bench), "1 $x; 2 $x; 3 [$c $x]; ");
    assert_eq!(bench.call_for(0, "EXISTS a b c").ok().as_deref(), Some(":0"));
}

#[test]
fn who_waits_for_its_own_destination_does_not_turn_forever() {
    let mut bench = bench();
    wait(&mut bench, &["BLMOVE l l LEFT RIGHT 0", "BLMOVE l l LEFT RIGHT 0"]);
    run(&mut bench, &["RPUSH l a b"]);
    assert_eq!(served(&mut bench), "1 $a; 2 $b; ");
    assert_eq!(bench.call_for(0, "LRANGE l 0 -1").ok().as_deref(), Some("[$a $b]"));
}

#[test]
fn a_destination_is_not_waited_for() {
    let mut bench = bench();
    wait(&mut bench, &["BLMOVE a b LEFT LEFT 0"]);
    run(&mut bench, &["RPUSH b x"]);
    assert_eq!(served(&mut bench), "");
    assert_eq!(bench.call_for(2, "BLPOP b 0").ok().as_deref(), Some("[$b $x]"));
}

#[test]
fn another_kind_wakes_nobody() {
    let mut bench = bench();
    wait(&mut bench, &["BLPOP l 0"]);
    run(&mut bench, &["SET l v", "HSET h f v", "DEL l"]);
    assert_eq!(served(&mut bench), "");
    run(&mut bench, &["RPUSH l a"]);
    assert_eq!(served(&mut bench), "1 [$l $a]; ");
}

#[test]
fn every_way_to_make_a_list_wakes() {
    for makes in [
        &["LPUSH l x"][..],
        &["RPUSH k x", "RENAME k l"],
        &["RPUSH k x", "COPY k l"],
        &["RPUSH k x", "LMOVE k l LEFT LEFT"],
        &["RPUSH k x", "RPOPLPUSH k l"],
    ] {
        let mut bench = bench();
        wait(&mut bench, &["BLPOP l 0"]);
        run(&mut bench, makes);
        assert_eq!(served(&mut bench), "1 [$l $x]; ", "{makes:?}");
    }
}

#[test]
fn an_element_that_is_gone_again_wakes_nobody() {
    let mut bench = bench();
    wait(&mut bench, &["BLPOP l 0"]);
    run(&mut bench, &["RPUSH l a", "LPOP l"]);
    assert_eq!(served(&mut bench), "");
    assert_eq!(bench.waiting().count(), 1);
}

/// It is served when the transaction is over, and what was there then it has not seen.
#[test]
fn what_has_become_something_else_wakes_nobody_who_waited_for_the_first() {
    let lists = ["BLPOP k 0", "BRPOP k 0", "BLMPOP 0 1 k LEFT", "BRPOPLPUSH k d 0"];
    let sets = ["BZPOPMIN k 0", "BZPOPMAX k 0", "BZMPOP 0 1 k MIN", "BZMPOP 0 2 k j MAX"];
    let streams = ["XREAD BLOCK 0 STREAMS k 0", "XREAD BLOCK 0 STREAMS j k $ $"];
    let families = [("RPUSH k a", &lists[..]), ("ZADD k 1 a", &sets), ("XADD k 1-1 f v", &streams)];
    for (makes, calls) in families {
        for other in ["SET k v", "HSET k f v", "SADD k m", "RENAME t k", "COPY t k REPLACE"] {
            let mut bench = bench();
            wait(&mut bench, calls);
            run(&mut bench, &["SET t v", makes, "DEL k", other]);
            assert_eq!(served(&mut bench), "", "{makes}, {other}");
            run(&mut bench, &["DEL k", makes]);
            assert_ne!(served(&mut bench), "", "{makes}, {other}");
        }
    }
}

#[test]
fn what_has_become_what_another_waits_for_wakes_that_one() {
    let mut bench = bench();
    wait(&mut bench, &["BLPOP k 0", "BZPOPMIN k 0", "XREAD BLOCK 0 STREAMS k $"]);
    run(&mut bench, &["RPUSH k a", "DEL k", "XADD k 1-1 f v", "DEL k", "ZADD k 1 a"]);
    assert_eq!(served(&mut bench), "2 [$k $a $1]; ");
    run(&mut bench, &["ZADD k 1 a", "DEL k", "XADD k 1-2 f v", "DEL k", "RPUSH k b"]);
    assert_eq!(served(&mut bench), "1 [$k $b]; ");
}

/// A key that nobody has touched is looked at only when there is something to take from another.
#[test]
fn one_of_several_keys_may_hold_something_else() {
    let mut bench = bench();
    wait(&mut bench, &["BLPOP j k 0", "BLPOP k j 0"]);
    run(&mut bench, &["SET j v", "RPUSH k a", "DEL k"]);
    assert_eq!(served(&mut bench), "");
    run(&mut bench, &["RPUSH k a"]);
    assert_eq!(served(&mut bench), format!("1 {WRONG_TYPE}; 2 [$k $a]; "));
}

#[test]
fn a_flush_and_a_swap_of_databases_are_changes_like_others() {
    let mut bench = bench();
    let member = "XREADGROUP GROUP g c BLOCK 0 STREAMS s >";
    run(&mut bench, &["XGROUP CREATE s g $ MKSTREAM"]);
    wait(&mut bench, &["BLPOP k 0", "XREAD BLOCK 0 STREAMS k 0", member]);
    run(&mut bench, &["RPUSH k a", "FLUSHALL", "SET k v"]);
    assert_eq!(served(&mut bench), format!("3 {NO_GROUP}; "));
    run(&mut bench, &["XGROUP CREATE s g $ MKSTREAM"]);
    assert!(bench.call_for(3, member).is_err());
    run(&mut bench, &["SELECT 1", "SET s v", "RPUSH k b", "SWAPDB 0 1", "SELECT 0", "DEL k"]);
    run(&mut bench, &["SET k v"]);
    assert_eq!(served(&mut bench), format!("3 {WRONG_TYPE}; "));
}

#[test]
fn who_comes_later_queues_behind() {
    let mut bench = bench();
    wait(&mut bench, &["BLPOP l 0"]);
    run(&mut bench, &["RPUSH l a b", "RPUSH m c"]);
    assert!(bench.call_for(2, "BLPOP l 0").is_err());
    assert_eq!(bench.call_for(3, "BLPOP l m 0").ok().as_deref(), Some("[$m $c]"));
    assert_eq!(served(&mut bench), "1 [$l $a]; 2 [$l $b]; ");
}

#[test]
fn the_deadline_is_absolute() {
    let mut bench = bench();
    bench.env.now_ms = 1_000_000;
    let waiter = bench.call_for(1, "BLPOP l 1.5").expect_err("it waits");
    assert_eq!(waiter.deadline_ms, Some(1_001_500));
    let waiter = bench.call_for(2, "BLMOVE l m LEFT LEFT 0.0001").expect_err("it waits");
    assert_eq!(waiter.deadline_ms, Some(1_000_001));
    assert_eq!(waiter.nothing, Nothing::NullArray);
    assert_eq!(bench.call_for(3, "BLPOP l 0").expect_err("it waits").deadline_ms, None);
}

#[test]
fn who_gave_up_is_passed_over() {
    let mut bench = bench();
    let first = bench.call_for(1, "BLPOP l 1").expect_err("it waits");
    assert!(bench.call_for(2, "BLPOP l 0").is_err());
    assert!(bench.waiting().cancel(&first));
    run(&mut bench, &["RPUSH l a"]);
    assert_eq!(served(&mut bench), "2 [$l $a]; ");
    assert!(!bench.waiting().cancel(&first), "it has ended already");
    assert_eq!(bench.waiting().count(), 0);
}

#[test]
fn who_was_served_cannot_give_up() {
    let mut bench = bench();
    let waiter = bench.call_for(1, "BLPOP l 1").expect_err("it waits");
    run(&mut bench, &["RPUSH l a"]);
    assert_eq!(served(&mut bench), "1 [$l $a]; ");
    assert!(!bench.waiting().cancel(&waiter));
}

#[test]
fn an_error_answers_too() {
    let mut bench = bench();
    wait(&mut bench, &["BLMOVE l s LEFT LEFT 0", "BLPOP l 0"]);
    run(&mut bench, &["SET s v", "RPUSH l a"]);
    assert_eq!(served(&mut bench), format!("1 {WRONG_TYPE}; 2 [$l $a]; "));
}

#[test]
fn the_log_gets_what_waiting_calls_did() {
    let mut bench = bench();
    wait(&mut bench, &["BLPOP l 0", "BLMOVE l m LEFT RIGHT 0", "BLMPOP 0 1 l RIGHT COUNT 5"]);
    run(&mut bench, &["RPUSH l a b c d"]);
    let effects: Vec<Effect> = bench.serve().into_iter().map(|(_, _, effect)| effect).collect();
    let expected = [
        call(&[b"LPOP", b"l"]),
        call(&[b"LMOVE", b"l", b"m", b"LEFT", b"RIGHT"]),
        call(&[b"RPOP", b"l", b"2"]),
    ];
    assert_eq!(effects, expected.map(|call| Effect::Rewritten(vec![call])));
}
