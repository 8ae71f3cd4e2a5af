//! Takes out of drawn calls what no two servers could answer alike, or none in this life: times
//! that come while we look, ids made of the clock, waiting forever, billions of random elements.

use kvasir_harness::link::Call;

use super::intended::Peer;

const DAY_MS: i128 = 86_400_000;

/// What a blocking call waits at most.
const WAIT_SECONDS: &[u8] = b"0.002";
const WAIT_MS: &[u8] = b"2";

/// The most elements that a call may draw with repetition.
const DRAWS_MAX: i64 = 200;

pub fn tame(call: &mut Call, peer: Peer) {
    let name = call[0].to_ascii_lowercase();
    postpone(call, &name);
    shorten_wait(call, &name);
    if peer == Peer::Valkey {
        spare_words(call, &name);
    } else {
        spare_old_numbers(call);
    }
    match &name[..] {
        b"hrandfield" | b"srandmember" | b"zrandmember" if draws_many(call) => {
            call[2] = b"-50".to_vec();
        }
        // An id that is the time; `7-*` is none.
        b"xadd" => call.iter_mut().filter(|word| *word == b"*").for_each(|word| {
            *word = b"7-*".to_vec();
        }),
        // Redis removes by the least count, which the others refuse.
        b"lrem" if peer == Peer::Redis => {
            replace_number(call, Some(2), b"-1", |count| count == i64::MIN);
        }
        // Of an index that does not fit an int Valkey sees only the lower half, in a small list.
        b"lset" if peer == Peer::Valkey => replace_number(call, Some(2), b"1", is_beyond_int),
        // As of a number of fields.
        b"hsetex" if peer == Peer::Valkey => {
            replace_number(call, place_behind(call, b"fields"), b"0", is_beyond_int);
        }
        // From an offset below 0 Valkey counts back from the end, though not in a small set; here,
        // as in Redis 7.0, there is nothing.
        name if peer == Peer::Valkey && name.starts_with(b"z") => {
            replace_number(call, place_behind(call, b"limit"), b"0", |offset| offset < 0);
        }
        b"set" if peer == Peer::Redis => tame_past(call),
        // Redis 7.0 lets the last id go back behind a deleted one: beside it none is ever set.
        b"xsetid" if peer == Peer::Redis => call.iter_mut().skip(2).take(1).for_each(|id| {
            *id = b"-".to_vec();
        }),
        b"sort" | b"sort_ro" => tame_sort(call),
        b"setrange" | b"setbit" | b"bitfield" | b"append" => spare_sketch(call),
        // Any so many of those found: which are they?
        b"geosearchstore" | b"georadius" | b"georadiusbymember" => remove_word(call, b"any"),
        _ => {}
    }
}

/// Redis 7.0 reads numbers that Valkey 9.1 refuses, as we do: hexadecimal ones, and behind a space.
fn spare_old_numbers(call: &mut Call) {
    for word in call.iter_mut().skip(1) {
        match &word[..] {
            b"0x10" => *word = b"16".to_vec(),
            b"(0x10" => *word = b"(16".to_vec(),
            b" 1" | b"( 1" => *word = b"1".to_vec(),
            _ => {}
        }
    }
}

/// Valkey takes a key with the name of an option for the option, and tells of another key then.
fn spare_words(call: &mut Call, name: &[u8]) {
    const WORDS: [&str; 11] =
        ["fields", "nx", "xx", "fnx", "fxx", "ex", "px", "exat", "pxat", "keepttl", "persist"];
    let is_option =
        |key: &&mut Vec<u8>| WORDS.iter().any(|word| key.eq_ignore_ascii_case(word.as_bytes()));
    if let b"hgetex" | b"hsetex" = name
        && let Some(key) = call.get_mut(1).filter(is_option)
    {
        key.push(b'2');
    }
}

/// A PFADD that comes upon damage has set some registers before in Redis, and none here.
fn spare_sketch(call: &mut Call) {
    if let Some(first) = call.get_mut(1).and_then(|key| key.first_mut())
        && *first == b'p'
    {
        *first = b's';
    }
}

/// A key that is set to be dead already Redis 7.0 keeps, and tells of, until somebody looks at it.
fn tame_past(call: &mut Call) {
    // In s: 2033, and a moment far behind it.
    const SOON: i64 = 2_000_000_000;
    const FAR: i64 = 9_999_999_999;
    for at in 3..call.len() {
        let unit = match call[at - 1].to_ascii_lowercase().as_slice() {
            b"exat" => 1,
            b"pxat" => 1000,
            _ => continue,
        };
        if integer(&call[at]).is_some_and(|moment| (1..SOON * unit).contains(&moment)) {
            call[at] = (FAR * unit).to_string().into_bytes();
        }
    }
}

/// Puts a text in place of an argument that is such a number.
fn replace_number(call: &mut Call, at: Option<usize>, by: &[u8], is_such: impl Fn(i64) -> bool) {
    if let Some(number) = at.and_then(|at| call.get_mut(at))
        && integer(number).is_some_and(is_such)
    {
        *number = by.to_vec();
    }
}

fn place_behind(call: &Call, word: &[u8]) -> Option<usize> {
    call.iter().position(|arg| arg.eq_ignore_ascii_case(word)).map(|at| at + 1)
}

fn is_beyond_int(number: i64) -> bool {
    i32::try_from(number).is_err()
}

fn tame_sort(call: &mut Call) {
    // For COMMAND GETKEYS of the peers a destination of the name STORE is the option once more.
    for at in 3..call.len() {
        if [at - 1, at].iter().all(|at| call[*at].eq_ignore_ascii_case(b"store")) {
            call[at] = b"stored".to_vec();
        }
    }
    // Of equal weights, which comes first is nobody's promise.
    if has_word(call, b"by") {
        remove_word(call, b"alpha");
    }
    // What an empty text weighs in Valkey differs, and both peers refuse numbers now and then
    // because of an earlier call's; that may only be seen in replies.
    let at = call.iter().position(|word| word.eq_ignore_ascii_case(b"store"));
    if let Some(at) = at
        && !has_word(call, b"alpha")
    {
        call.drain(at..(at + 2).min(call.len()));
    }
}

fn draws_many(call: &Call) -> bool {
    call.get(2).and_then(|count| integer(count)).is_some_and(|count| count < -DRAWS_MAX)
}

/// Moves a time that comes soon to one that does not.
fn postpone(call: &mut Call, name: &[u8]) {
    let times: Vec<(usize, i128)> = match name {
        b"expire" | b"setex" | b"hexpire" => vec![(2, 1000)],
        b"pexpire" | b"psetex" | b"hpexpire" => vec![(2, 1)],
        b"set" | b"getex" | b"hgetex" | b"hsetex" | b"msetex" => (2..call.len())
            .filter_map(|at| match call[at - 1].to_ascii_lowercase().as_slice() {
                b"ex" => Some((at, 1000)),
                b"px" => Some((at, 1)),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    for (at, unit_ms) in times {
        let is_soon = |value: &Vec<u8>| {
            let Some(value) = integer(value) else { return false };
            (1..DAY_MS).contains(&(i128::from(value) * unit_ms))
        };
        if call.get(at).is_some_and(is_soon) {
            call[at] = b"1000000000".to_vec();
        }
    }
}

/// Nobody pushes while a call waits, so waiting only takes time.
fn shorten_wait(call: &mut Call, name: &[u8]) {
    let last = call.len() - 1;
    let at = match name {
        b"blpop" | b"brpop" | b"bzpopmin" | b"bzpopmax" => last,
        b"brpoplpush" => 3,
        b"blmove" => 5,
        b"blmpop" | b"bzmpop" => 1,
        b"xread" | b"xreadgroup" => {
            for at in 1..last {
                let waits = integer(&call[at + 1]).is_some_and(|ms| ms >= 0);
                if call[at].eq_ignore_ascii_case(b"block") && waits {
                    call[at + 1] = WAIT_MS.to_vec();
                }
            }
            return;
        }
        _ => return,
    };
    if let Some(value) = call.get_mut(at)
        && std::str::from_utf8(value).is_ok_and(|text| text.parse::<f64>().is_ok_and(|s| s >= 0.0))
    {
        *value = WAIT_SECONDS.to_vec();
    }
}

fn has_word(call: &Call, word: &[u8]) -> bool {
    call.iter().any(|arg| arg.eq_ignore_ascii_case(word))
}

fn remove_word(call: &mut Call, word: &[u8]) {
    call.retain(|arg| !arg.eq_ignore_ascii_case(word));
}

fn integer(bytes: &[u8]) -> Option<i64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tamed(line: &str) -> String {
        tamed_for(Peer::Valkey, line)
    }

    fn tamed_for(peer: Peer, line: &str) -> String {
        let mut call: Call = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        tame(&mut call, peer);
        call.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn no_time_comes_while_we_look() {
        assert_eq!(tamed("EXPIRE k 5"), "EXPIRE k 1000000000");
        assert_eq!(tamed("EXPIRE k -5"), "EXPIRE k -5");
        assert_eq!(tamed("Set k v Px 9 GET"), "Set k v Px 1000000000 GET");
        assert_eq!(tamed("SET k v"), "SET k v");
        assert_eq!(tamed("HRANDFIELD h -9000000000"), "HRANDFIELD h -50");
        assert_eq!(tamed("XADD x * f v"), "XADD x 7-* f v");
        assert_eq!(tamed("HSETEX fields FIELDS 1 f v"), "HSETEX fields2 FIELDS 1 f v");
        assert_eq!(tamed("HSETEX xx FXX FIELDS 1 f v"), "HSETEX xx2 FXX FIELDS 1 f v");
        assert_eq!(tamed("XSETID x 5"), "XSETID x 5");
        assert_eq!(tamed("LSET l 4294967295 x"), "LSET l 1 x");
        assert_eq!(tamed("LSET l -5 4294967295"), "LSET l -5 4294967295");
        let line = "LREM l -9223372036854775808 x";
        assert_eq!(tamed(line), line);
        assert_eq!(tamed_for(Peer::Redis, line), "LREM l -1 x");
        assert_eq!(tamed("HSETEX h FIELDS 4294967297 f v"), "HSETEX h FIELDS 0 f v");
        assert_eq!(tamed_for(Peer::Redis, "XSETID x 5"), "XSETID x -");
    }

    #[test]
    fn nothing_begins_behind_the_end() {
        assert_eq!(tamed("ZRANGEBYSCORE z 1 9 LIMIT -1 2"), "ZRANGEBYSCORE z 1 9 LIMIT 0 2");
        assert_eq!(tamed("zrangestore d z 1 9 limit 1 -2"), "zrangestore d z 1 9 limit 1 -2");
        let line = "ZREVRANGEBYLEX z + - LIMIT -1 2";
        assert_eq!(tamed_for(Peer::Redis, line), line);
    }

    #[test]
    fn nothing_is_born_dead_for_redis() {
        let redis = |line| tamed_for(Peer::Redis, line);
        assert_eq!(redis("SET k v pxat 1000"), "SET k v pxat 9999999999000");
        assert_eq!(redis("SET k v NX EXAT 1795125348"), "SET k v NX EXAT 9999999999");
        assert_eq!(redis("SET k v EXAT -5"), "SET k v EXAT -5");
        assert_eq!(redis("SET k v PXAT"), "SET k v PXAT");
        assert_eq!(tamed("SET k v PXAT 1000"), "SET k v PXAT 1000");
    }

    #[test]
    fn what_is_sorted_by_numbers_is_not_stored() {
        assert_eq!(tamed("SORT l STORE l2 DESC"), "SORT l DESC");
        assert_eq!(tamed("SORT l ALPHA STORE l2"), "SORT l ALPHA STORE l2");
        assert_eq!(tamed("SORT l BY w* ALPHA STORE"), "SORT l BY w*");
        assert_eq!(tamed("SORT l ALPHA STORE Store"), "SORT l ALPHA STORE stored");
    }

    #[test]
    fn nobody_waits_for_long() {
        assert_eq!(tamed("BLPOP a b 0"), "BLPOP a b 0.002");
        assert_eq!(tamed("BLPOP a b -1"), "BLPOP a b -1");
        assert_eq!(tamed("BLMOVE a b LEFT LEFT 1e3"), "BLMOVE a b LEFT LEFT 0.002");
        assert_eq!(tamed("XREAD BLOCK 0 STREAMS s $"), "XREAD BLOCK 2 STREAMS s $");
        assert_eq!(tamed("BZMPOP"), "BZMPOP");
    }
}
