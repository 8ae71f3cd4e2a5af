//! Drawing members: SPOP, SRANDMEMBER.

use kvasir_resp::reply::Reply;

use crate::command::{Command, Cx, Run};
use crate::commands::draw_options::Draws;
use crate::commands::options::integer;
use crate::effect::{Effect, call};
use crate::error::Error;
use crate::event::Class;
use crate::rng::Rng;
use crate::set_value::{self, Set};
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&SPOP, &SRANDMEMBER];

/// Members in one SREM of an effect.
const LOGGED_MAX: usize = 1024;
/// From so many draws with repetition on a small set is listed first.
const LOOKUPS_MAX: usize = 16;

static SPOP: Command = Command {
    spec: Spec {
        name: "spop",
        summary: "Removes members drawn at random and returns them.",
        since: "1.0.0",
        group: Group::Set,
        complexity: "O(N) where N is the number of members returned, so O(1) without a count.",
        arity: -2,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE))],
        tips: &["nondeterministic_output"],
        history: &[("3.2.0", "Takes a `count`.")],
        arguments: &[Argument::key("key", 0), Argument::integer("count").since("3.2.0").optional()],
        ..Spec::BLANK
    },
    run: Run::Keys(spop),
};

fn spop(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let count = match cx.args.len() {
        2 => None,
        3 => Some(pop_count(&cx.args[2])?),
        _ => return Err(Error::SYNTAX),
    };
    let Some(len) = set_value::peek(&mut cx.view, 0)?.map(Set::len) else {
        match count {
            Some(_) => cx.reply.set(0),
            None => cx.reply.null(),
        }
        return Ok(Effect::None);
    };
    if let Some(count) = count {
        cx.reply.set(count.min(len));
    }
    let count = count.unwrap_or(1);
    let (logs, is_whole) = (cx.view.env.logs, count >= len);
    let mut popped = Vec::new();
    set_value::pop(&mut cx.view, 0, count, cx.rng, |member| {
        set_value::write(cx.reply, member);
        if logs && !is_whole {
            popped.push(member.to_vec());
        }
    })?;
    if count > 0 {
        cx.view.shrunk(0, Class::SET, "spop");
    }
    Ok(effect(&cx.args[1], &popped, count.min(len), is_whole, logs))
}

fn pop_count(text: &[u8]) -> Result<usize, Error> {
    let out_of_range = Error::fixed("ERR value is out of range, must be positive");
    let count = integer(text).map_err(|_| out_of_range.clone())?;
    usize::try_from(count).map_err(|_| out_of_range)
}

/// What was drawn, as removals.
fn effect(key: &[u8], popped: &[Vec<u8>], count: usize, is_whole: bool, logs: bool) -> Effect {
    if count == 0 {
        return Effect::None;
    }
    if !logs {
        return Effect::Rewritten(Vec::new());
    }
    if is_whole {
        return Effect::Rewritten(vec![call(&[b"DEL", key])]);
    }
    let removal = |members: &[Vec<u8>]| {
        let mut removal = call(&[b"SREM", key]);
        removal.extend_from_slice(members);
        removal
    };
    Effect::Rewritten(popped.chunks(LOGGED_MAX).map(removal).collect())
}

static SRANDMEMBER: Command = Command {
    spec: Spec {
        name: "srandmember",
        summary: "Returns members drawn at random, and leaves them in the set.",
        since: "1.0.0",
        group: Group::Set,
        complexity: "O(N) where N is the number of members returned, so O(1) without a count; \
                     for more than a third of a set, the number of its members.",
        arity: -2,
        flags: Flags::READONLY,
        keys: &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output"],
        history: &[("2.6.0", "Takes a `count`.")],
        arguments: &[Argument::key("key", 0), Argument::integer("count").since("2.6.0").optional()],
        ..Spec::BLANK
    },
    run: Run::Keys(srandmember),
};

fn srandmember(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let count = match cx.args.len() {
        2 => None,
        3 => Some(Draws::parse(&cx.args[2])?),
        _ => return Err(Error::SYNTAX),
    };
    let set = set_value::read(&mut cx.view, 0)?;
    match (set, count) {
        (Some(set), None) => set_value::write(cx.reply, set.random(cx.rng)),
        (Some(set), Some(draws)) => draw(set, draws, cx.rng, cx.reply),
        (None, None) => cx.reply.null(),
        (None, Some(_)) => cx.reply.array(0),
    }
    Ok(Effect::None)
}

fn draw(set: Set<'_>, draws: Draws, rng: &mut Rng, reply: &mut Reply) {
    let draws = match draws {
        Draws::Repeated(count) => count,
        Draws::Distinct(count) => {
            let drawn = set.random_distinct(count, rng);
            reply.array(drawn.len());
            return drawn.into_iter().for_each(|member| set_value::write(reply, member));
        }
    };
    reply.array(draws);
    // A listpack is walked for each draw; a table is not.
    let listed = match set {
        Set::Packed(_) if draws >= LOOKUPS_MAX => set.members(),
        _ => Vec::new(),
    };
    for _ in 0..draws {
        let member = match listed.len() {
            0 => set.random(rng),
            len => listed[rng.below(len)],
        };
        set_value::write(reply, member);
        if reply.is_cut() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use kvasir_resp::decode::decode;
    use kvasir_resp::reply::Protocol;

    use crate::effect::Effect;
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check_valkey, check3, split};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn spop_shapes() {
        check("SADD s 7; SPOP s; EXISTS s; SPOP s; SPOP s 1; SPOP s 0", ":1; $7; :0; _; []; []");
        check3("SADD s a; SPOP s 5; EXISTS s; SPOP s; SPOP s 1", ":1; ~[$a]; :0; _; ~[]");
        check3("SADD s a; SPOP s 0; SCARD s", ":1; ~[]; :1");
        check("SADD s 3 1 2; SPOP s 3; EXISTS s", ":3; [$1 $2 $3]; :0");
        check_valkey("SADD s b a 1; SPOP s 9; EXISTS s", ":3; [$b $a $1]; :0");
        check("SADD s 3 1 2; SPOP s 9223372036854775807", ":3; [$1 $2 $3]");
    }

    #[test]
    fn srandmember_shapes() {
        let calls = "SRANDMEMBER s; SRANDMEMBER s 0; SRANDMEMBER s 4; SRANDMEMBER s -3; SCARD s";
        check(&format!("SADD s 7; {calls}"), ":1; $7; []; [$7]; [$7 $7 $7]; :1");
        check3(&format!("SADD s a; {calls}"), ":1; $a; []; [$a]; [$a $a $a]; :1");
        check(calls, "_; []; []; []; :0");
        check3(calls, "_; []; []; []; :0");
        check("SADD s 3 1 2; SRANDMEMBER s 3", ":3; [$1 $2 $3]");
        check_valkey("SADD s b a 1; SRANDMEMBER s 4", ":3; [$b $a $1]");
    }

    #[test]
    fn refuses() {
        let out_of_range = "-ERR value is out of range, must be positive";
        check(
            "SET t v; SPOP t; SPOP t 1; SPOP t 0; SPOP t -1; SPOP none x; SPOP t 1 2",
            &format!(
                "+OK; {WRONG_TYPE}; {WRONG_TYPE}; {WRONG_TYPE}; {out_of_range}; {out_of_range}; \
                 -ERR syntax error"
            ),
        );
        let not_integer = "-ERR value is not an integer or out of range";
        check(
            "SET t v; SRANDMEMBER t; SRANDMEMBER t 1; SRANDMEMBER t 0; SRANDMEMBER t x; \
             SRANDMEMBER none 9223372036854775808; SRANDMEMBER t 1 2",
            &format!(
                "+OK; {WRONG_TYPE}; {WRONG_TYPE}; {WRONG_TYPE}; {not_integer}; {not_integer}; \
                 -ERR syntax error"
            ),
        );
        check(
            "SPOP; SRANDMEMBER; SRANDMEMBER s -9223372036854775808",
            "-ERR wrong number of arguments for 'spop' command; \
             -ERR wrong number of arguments for 'srandmember' command; \
             -ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807",
        );
    }

    /// Sets of each encoding and some sizes.
    fn sets() -> impl Iterator<Item = (Bench, usize)> {
        [("", 1), ("", 300), ("m", 100), ("m", 2000)].into_iter().map(|(prefix, count)| {
            let mut bench = Bench::new(Protocol::Resp2);
            for n in 0..count {
                bench.call(split(&format!("SADD s {prefix}{n}"))[0].as_args());
            }
            (bench, count)
        })
    }

    fn ask(bench: &mut Bench, call: &str) -> (Vec<Vec<u8>>, Effect) {
        let (reply, effect) = bench.call(split(call)[0].as_args());
        let reply = decode(&reply).expect("a reply");
        let members = reply.as_array().expect("an array").iter();
        (members.map(|member| member.as_bytes().expect("a member").to_vec()).collect(), effect)
    }

    #[test]
    fn draws_are_fair_and_distinct() {
        for (mut bench, len) in sets() {
            for count in [1usize, 3, 9, 20, 299, 1900] {
                let drawn = ask(&mut bench, &format!("SRANDMEMBER s {count}")).0;
                let distinct: BTreeSet<_> = drawn.iter().collect();
                assert_eq!((drawn.len(), distinct.len()), (count.min(len), count.min(len)));
            }
            let mut counts = BTreeMap::<Vec<u8>, usize>::new();
            for member in ask(&mut bench, &format!("SRANDMEMBER s -{}", len * 100)).0 {
                *counts.entry(member).or_default() += 1;
            }
            assert_eq!(counts.len(), len);
            assert!(counts.values().all(|count| (40..200).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn what_is_popped_is_gone_and_logged() {
        for (mut bench, len) in sets() {
            let (mut popped, mut rounds) = (BTreeSet::new(), 0);
            while popped.len() < len {
                let wanted = [1, 7, 50, 1100][rounds % 4].min(len - popped.len());
                let (members, effect) = ask(&mut bench, &format!("SPOP s {wanted}"));
                assert_eq!(members.len(), wanted);
                popped.extend(members.iter().cloned());
                rounds += 1;
                let Effect::Rewritten(calls) = effect else { panic!("{effect:?}") };
                if popped.len() == len {
                    assert_eq!(calls, [[&b"DEL"[..], b"s"]]);
                    break;
                }
                let logged: Vec<_> = calls.iter().flat_map(|call| &call[2..]).cloned().collect();
                assert_eq!(logged, members);
                assert!(calls.iter().all(|call| call[0] == b"SREM" && call.len() <= 1026));
                assert!(
                    bench.call(split("SCARD s")[0].as_args()).0
                        == format!(":{}\r\n", len - popped.len()).into_bytes()
                );
            }
            assert_eq!(popped.len(), len, "none was popped twice");
            assert_eq!(bench.call(split("EXISTS s")[0].as_args()).0, b":0\r\n");
        }
    }

    #[test]
    fn nothing_is_logged_where_nobody_reads() {
        let mut bench = Bench::new(Protocol::Resp2);
        bench.env.logs = false;
        bench.call(split("SADD s 1 2 3")[0].as_args());
        assert_eq!(ask(&mut bench, "SPOP s 2").1, Effect::Rewritten(Vec::new()));
        assert_eq!(ask(&mut bench, "SPOP s 0").1, Effect::None);
        assert_eq!(ask(&mut bench, "SPOP none 2").1, Effect::None);
    }

    #[test]
    fn events_of_popping() {
        check_events(
            "SADD s 1 2 3 4 5; SPOP s; SPOP s 0; SPOP s 2; SPOP s 9; SPOP s; SPOP s 2; SADD s 1; \
             SPOP s; SRANDMEMBER s; SRANDMEMBER s 2",
            "new s, sadd s; spop s; ; spop s; spop s, del s; ; ; new s, sadd s; spop s, del s; \
             keymiss s; keymiss s",
        );
    }
}
