//! Which replies may differ, and why.
//!
//! `NORMAL` holds what no two servers answer alike: order and time. `INTENDED` holds where Kvasir
//! means to differ from a peer; each entry has to be met, or it is reported as unused.

use clap::ValueEnum;
use kvasir_resp::number;

use super::script_replies::{in_words_of_valkey, with_pairs_sorted};
use crate::link::Call;
use crate::raw::Raw;

/// Replies that read a clock may be so far apart.
const CLOCK_TOLERANCE_MS: u64 = 5000;

/// The server that is right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Peer {
    /// 7.0
    Redis,
    /// 9.1
    Valkey,
}

/// What decides which rules hold.
#[derive(Clone, Copy)]
pub struct Terms {
    pub peer: Peer,
    /// Whether more than data commands is drawn.
    pub mixes: bool,
}

/// Rules that only scripts and questions about calls need.
const MIXED: [&str; 8] = [
    "queued-refcount",
    "count-with-more",
    "script-words",
    "script-numbers",
    "script-maps",
    "keys-of-nothing",
    "written-key",
    "stored-twice",
];

/// A reason for two replies to differ.
pub struct Rule {
    pub name: &'static str,
    pub reason: &'static str,
    /// Both peers if `None`.
    peer: Option<Peer>,
    matches: fn(&str, &Call, &Raw, &Raw) -> bool,
}

impl Rule {
    pub fn holds(&self, terms: Terms) -> bool {
        self.peer.is_none_or(|only| only == terms.peer)
            && (terms.mixes || !MIXED.contains(&self.name))
    }

    pub fn excuses(&self, name: &str, call: &Call, ours: &Raw, theirs: &Raw) -> bool {
        (self.matches)(name, call, ours, theirs)
    }
}

const fn rule(
    name: &'static str,
    reason: &'static str,
    matches: fn(&str, &Call, &Raw, &Raw) -> bool,
) -> Rule {
    Rule { name, reason, peer: None, matches }
}

pub static NORMAL: &[Rule] = &[
    rule("order", "the order of a hash table is nobody's promise", |name, _, ours, theirs| {
        let per_item = match name {
            "hgetall" => 2,
            "keys" | "hkeys" | "hvals" | "smembers" | "sinter" | "sunion" | "sdiff" => 1,
            _ => return false,
        };
        ours.sorted(per_item) == theirs.sorted(per_item)
    }),
    rule("unsorted", "a set that SORT does not sort has no order", |name, call, ours, theirs| {
        let is_unsorted = matches!(name, "sort" | "sort_ro") && sorts_by_nothing(call);
        let gets = call.iter().filter(|word| word.eq_ignore_ascii_case(b"get")).count().max(1);
        let is_cut = has_word(call, b"limit") && ours.has_shape_of(theirs);
        is_unsorted && (is_cut || ours.sorted(gets) == theirs.sorted(gets))
    }),
    rule(
        "zero-byte",
        "texts end at a zero byte for SORT ALPHA of the peers, which takes them for equal then",
        |name, call, ours, theirs| {
            let is_alpha = matches!(name, "sort" | "sort_ro") && has_word(call, b"alpha");
            is_alpha && ours.has_shape_of(theirs) && until_zero(ours) == until_zero(theirs)
        },
    ),
    rule(
        "places",
        "places come in any order where none is asked for",
        |name, call, ours, theirs| {
            let is_search = name == "geosearch" || name.starts_with("georadius");
            let is_ordered = has_word(call, b"asc") || has_word(call, b"desc");
            let is_any = has_word(call, b"any") && ours.has_shape_of(theirs);
            is_search && (is_any || (!is_ordered && ours.sorted(1) == theirs.sorted(1)))
        },
    ),
    rule("clock", "two servers are asked at two moments", |name, call, ours, theirs| {
        let slack = match name {
            "ttl" | "expiretime" | "httl" | "hexpiretime" => CLOCK_TOLERANCE_MS / 1000,
            "pttl" | "pexpiretime" | "hpttl" | "hpexpiretime" => CLOCK_TOLERANCE_MS,
            "object" if is_word(call, b"idletime") => CLOCK_TOLERANCE_MS / 1000,
            "xpending" | "xinfo" => return is_near(ours, theirs, 0),
            _ => return false,
        };
        let pairs = || ours.items().iter().zip(theirs.items());
        is_near(ours, theirs, slack)
            || (!ours.items().is_empty()
                && ours.has_shape_of(theirs)
                && pairs().all(|(ours, theirs)| is_near(ours, theirs, slack)))
    }),
    rule("hello", "a server says who it is", |name, _, ours, theirs| {
        const FIELDS: [&str; 5] = ["server", "version", "id", "modules", "availability_zone"];
        name == "hello" && !ours.is_error() && without(ours, &FIELDS) == without(theirs, &FIELDS)
    }),
    rule("dump", "a serialized value names its format's version", |name, _, ours, theirs| {
        name == "dump" && !ours.is_error() && ours.has_shape_of(theirs)
    }),
];

pub static INTENDED: &[Rule] = &[
    rule("help", "the lines of a HELP are written by us", |_, call, ours, theirs| {
        is_word(call, b"help") && !ours.items().is_empty() && ours.items()[0] == theirs.items()[0]
    }),
    rule(
        "idletime",
        "Redis keeps one idle time for all keys with the same small integer",
        |_, call, ours, theirs| match (ours.integer(), theirs.integer()) {
            (Some(ours), Some(theirs)) => is_word(call, b"idletime") && 0 <= ours && ours < theirs,
            _ => false,
        },
    ),
    rule(
        "refcount",
        "Kvasir does not share small integers between keys",
        |_, call, ours, theirs| {
            let is_shared = ours.integer() == Some(1) && theirs.integer() == Some(i32::MAX.into());
            is_word(call, b"refcount") && is_shared
        },
    ),
    rule(
        "stale-errno",
        "SORT of the peers takes an earlier call's number out of range for one of its own",
        |name, call, ours, theirs| {
            let is_stale = |raw: &Raw| matches!(raw, Raw::Leaf(text) if text.starts_with(b"-ERR One or more scores"));
            let stores = has_word(call, b"store");
            matches!(name, "sort" | "sort_ro") && !stores && is_stale(theirs) && !is_stale(ours)
        },
    ),
    rule(
        "pfadd-copies",
        "PFADD of what is known already leaves a HyperLogLog alone, the peers make a copy of it, \
         which may have gone to any key since",
        |_, call, ours, theirs| is_word(call, b"encoding") && are(ours, theirs, b"embstr", b"raw"),
    ),
    rule(
        "tree-nodes",
        "what a stream is made of inside is not what it holds",
        |name, _, ours, theirs| {
            name == "xinfo" && {
                let [ours, theirs] = [ours, theirs].map(|raw| without(raw, &TREE_FIELDS));
                is_near(&ours, &theirs, 0)
            }
        },
    ),
    Rule {
        name: "unit-before-end",
        reason: "BITCOUNT and BITPOS look at the unit before they look at the end, as Valkey",
        peer: Some(Peer::Redis),
        matches: |name, _, ours, theirs| {
            matches!(name, "bitcount" | "bitpos")
                && is_error_with(ours, b"syntax error")
                && is_error_with(theirs, b"value is not an integer")
        },
    },
    Rule {
        name: "groups-of-7.2",
        reason: "since 7.2 Redis tells when a consumer was last active, and counts a group's lag \
                 otherwise where entries were deleted",
        peer: Some(Peer::Redis),
        matches: |name, _, ours, theirs| {
            const FIELDS: [&str; 5] =
                [TREE_FIELDS[0], TREE_FIELDS[1], "inactive", "active-time", "lag"];
            name == "xinfo" && {
                let [ours, theirs] = [ours, theirs].map(|raw| without(raw, &FIELDS));
                is_near(&ours, &theirs, 0)
            }
        },
    },
    Rule {
        name: "list-encoding",
        reason: "small lists are listpacks since Redis 7.2",
        peer: Some(Peer::Redis),
        matches: |_, call, ours, theirs| {
            is_word(call, b"encoding") && are(ours, theirs, b"listpack", b"quicklist")
        },
    },
    Rule {
        name: "set-encoding",
        reason: "small sets are listpacks since Redis 7.2",
        peer: Some(Peer::Redis),
        matches: |_, call, ours, theirs| {
            is_word(call, b"encoding") && are(ours, theirs, b"listpack", b"hashtable")
        },
    },
    Rule {
        name: "sorted-set-encoding",
        reason: "a small sorted set is made large for what a call brings since Redis 7.2",
        peer: Some(Peer::Redis),
        matches: |_, call, ours, theirs| {
            is_word(call, b"encoding") && are(ours, theirs, b"skiplist", b"listpack")
        },
    },
    Rule {
        name: "double-digits",
        reason: "Redis before 7.2 writes a score with 17 digits, Kvasir with as few as are needed; \
                 and it loses the sign of -0 where a call makes a skiplist of what it began as a \
                 listpack",
        peer: Some(Peer::Redis),
        matches: |name, _, ours, theirs| {
            let has_scores = name.trim_start_matches('b').starts_with('z');
            has_scores && ours != theirs && are_equal_doubles(ours, theirs)
        },
    },
    Rule {
        name: "withscore",
        reason: "ZRANK knows WITHSCORE since Redis 7.2",
        peer: Some(Peer::Redis),
        matches: |name, call, _, theirs| {
            let is_rank = matches!(name, "zrank" | "zrevrank");
            is_rank && call.len() == 4 && is_error_with(theirs, b"wrong number of arguments")
        },
    },
    Rule {
        name: "unbalanced",
        reason: "the error names the command since Redis 7.2",
        peer: Some(Peer::Redis),
        matches: |_, _, ours, theirs| {
            is_error_with(ours, b"ERR Unbalanced 'xread")
                && is_error_with(theirs, b"ERR Unbalanced XREAD")
        },
    },
    Rule {
        name: "bits-of-nothing",
        reason: "BITCOUNT and BITPOS look at their numbers before the key since Redis 7.2",
        peer: Some(Peer::Redis),
        matches: |name, _, ours, theirs| {
            let is_nothing =
                matches!(theirs.integer(), Some(0 | -1)) || is_error_with(theirs, b"WRONGTYPE");
            let is_wrong = is_error_with(ours, b"syntax error")
                || is_error_with(ours, b"not an integer")
                || is_error_with(ours, b"The bit argument must be 1 or 0");
            matches!(name, "bitcount" | "bitpos") && is_nothing && is_wrong
        },
    },
    Rule {
        name: "bitcount-start",
        reason: "BITCOUNT takes a start without an end since Valkey 8.0",
        peer: Some(Peer::Redis),
        matches: |name, call, _, theirs| {
            name == "bitcount" && call.len() == 3 && is_error_with(theirs, b"syntax error")
        },
    },
    Rule {
        name: "xread-last",
        reason: "XREAD knows the ID + since Redis 7.4",
        peer: Some(Peer::Redis),
        matches: |name, call, _, theirs| {
            name.starts_with("xread")
                && has_word(call, b"+")
                && is_error_with(theirs, b"Invalid stream ID specified")
        },
    },
    Rule {
        name: "keys-of-nothing",
        reason: "COMMAND GETKEYS takes a command's name alone since Valkey 8.0",
        peer: Some(Peer::Redis),
        matches: |name, call, _, theirs| {
            name == "command" && call.len() == 3 && is_error_with(theirs, b"wrong number of arg")
        },
    },
    Rule {
        name: "queued-refcount",
        reason: "the peers count a queued call's own hold on what it stores",
        peer: None,
        matches: |_, call, ours, theirs| {
            is_word(call, b"refcount") && are(ours, theirs, b"1", b"2")
        },
    },
    Rule {
        name: "count-with-more",
        reason: "COMMAND GETKEYS of the peers takes a count with something behind it for a count",
        peer: None,
        matches: |name, call, ours, theirs| {
            let asks = is_word(call, b"getkeys") || is_word(call, b"getkeysandflags");
            let is_refused = is_error_with(ours, b"Invalid arguments specified");
            name == "command" && asks && is_refused && !theirs.is_error()
        },
    },
    Rule {
        name: "written-key",
        reason: "SINTERSTORE's first key is overwritten, which COMMAND says since Redis 7.2",
        peer: Some(Peer::Redis),
        matches: |name, call, ours, theirs| {
            let is_store = call.get(2).is_some_and(|arg| arg.eq_ignore_ascii_case(b"sinterstore"));
            name == "command" && is_store && ours.has_shape_of(theirs)
        },
    },
    Rule {
        name: "stored-twice",
        reason: "of STORE and STOREDIST only the last says where GEORADIUS stores",
        peer: Some(Peer::Redis),
        matches: |name, call, ours, theirs| {
            let stores_twice = has_word(call, b"store") && has_word(call, b"storedist");
            name == "command" && stores_twice && ours.items().len() + 1 == theirs.items().len()
        },
    },
    Rule {
        name: "place-of-nobody",
        reason: "the error names the member since Valkey 8.0",
        peer: Some(Peer::Redis),
        matches: |name, _, ours, theirs| {
            name.starts_with("geo")
                && is_error_with(ours, b"ERR member ")
                && is_error_with(theirs, b"could not decode requested zset member")
        },
    },
    Rule {
        name: "shortest-digits",
        reason: "the algorithm of Valkey misses a double's shortest text now and then, or takes \
                 one of two that is no nearer",
        peer: Some(Peer::Valkey),
        matches: |name, _, ours, theirs| {
            let has_scores = name.trim_start_matches('b').starts_with('z');
            has_scores && ours != theirs && read_alike(ours, theirs)
        },
    },
    Rule {
        name: "scan-type",
        reason: "SCAN knows the names of types since Valkey 8.0",
        peer: Some(Peer::Redis),
        matches: |name, _, ours, theirs| {
            let is_wrong = is_error_with(theirs, b"syntax error");
            name == "scan"
                && (is_wrong || !theirs.is_error())
                && is_error_with(ours, b"unknown type name")
        },
    },
    Rule {
        name: "scan-cursor",
        reason: "a number below 0 and an empty text are no cursors, as in Valkey 9.1",
        peer: Some(Peer::Redis),
        matches: |name, _, ours, _| {
            name.ends_with("scan") && is_error_with(ours, b"invalid cursor")
        },
    },
    Rule {
        name: "getex-time",
        reason: "GETEX looks at the time first, as in Valkey 9.1",
        peer: Some(Peer::Redis),
        matches: |name, _, ours, theirs| {
            let is_wrong_time =
                is_error_with(ours, b"invalid expire") || is_error_with(ours, b"not an integer");
            let is_unseen = is_error_with(theirs, b"WRONGTYPE") || theirs.text().is_none();
            name == "getex" && is_unseen && is_wrong_time
        },
    },
    Rule {
        name: "sort-by-nothing",
        reason: "SORT takes a text without digits for 0, as in Redis",
        peer: Some(Peer::Valkey),
        matches: |name, _, ours, theirs| {
            matches!(name, "sort" | "sort_ro")
                && !ours.is_error()
                && is_error_with(theirs, b"scores can't be converted into double")
        },
    },
    Rule {
        name: "script-words",
        reason: "errors of scripts have the words and the place that Redis writes",
        peer: Some(Peer::Valkey),
        matches: |_, _, ours, theirs| {
            let is_unknown = is_error_with(ours, b"Unknown Redis command called from script")
                && is_error_with(theirs, b"unknown subcommand");
            is_unknown || in_words_of_valkey(ours) == in_words_of_valkey(theirs)
        },
    },
    Rule {
        name: "script-numbers",
        reason: "Valkey keeps numbers that a script stores as texts",
        peer: Some(Peer::Valkey),
        matches: |_, call, ours, theirs| {
            let is_text = are(ours, theirs, b"int", b"embstr") || are(ours, theirs, b"int", b"raw");
            is_word(call, b"encoding") && is_text
        },
    },
    Rule {
        name: "script-maps",
        reason: "the order of a Lua table is nobody's promise; Valkey's is another than Redis's",
        peer: Some(Peer::Valkey),
        matches: |name, _, ours, theirs| {
            let is_map = matches!(name, "lcs" | "xinfo" | "xread" | "xreadgroup");
            is_map && with_pairs_sorted(ours) == with_pairs_sorted(theirs)
        },
    },
    Rule {
        name: "text-encoding",
        reason: "Valkey's longest text beside its key is Valkey's, Kvasir reports Redis's",
        peer: Some(Peer::Valkey),
        matches: |_, call, ours, theirs| {
            let is_raw = are(ours, theirs, b"raw", b"embstr");
            is_word(call, b"encoding") && (is_raw || are(ours, theirs, b"embstr", b"raw"))
        },
    },
];

const TREE_FIELDS: [&str; 2] = ["radix-tree-keys", "radix-tree-nodes"];

fn is_word(call: &Call, word: &[u8]) -> bool {
    call.get(1).is_some_and(|arg| arg.eq_ignore_ascii_case(word))
}

/// The texts of an array, each up to its first zero byte.
fn until_zero(raw: &Raw) -> Vec<&[u8]> {
    let texts = raw.items().iter().filter_map(Raw::text);
    texts.filter_map(|text| text.split(|byte| *byte == 0).next()).collect()
}

fn has_word(call: &Call, word: &[u8]) -> bool {
    call.iter().any(|arg| arg.eq_ignore_ascii_case(word))
}

fn are(ours: &Raw, theirs: &Raw, wanted_ours: &[u8], wanted_theirs: &[u8]) -> bool {
    ours.text() == Some(wanted_ours) && theirs.text() == Some(wanted_theirs)
}

fn is_error_with(reply: &Raw, words: &[u8]) -> bool {
    let text = if reply.is_error() { reply.text() } else { None };
    text.is_some_and(|text| text.windows(words.len()).any(|part| part == words))
}

/// Equal but for doubles that they write with all digits, and we with fewer; and for signs of 0.
fn are_equal_doubles(ours: &Raw, theirs: &Raw) -> bool {
    are_alike(ours, theirs, |ours, theirs| {
        let is_long = |value| {
            let mut long = Vec::new();
            number::write_double(value, &mut long);
            theirs.text() == Some(&long)
        };
        are(ours, theirs, b"-0", b"0") || shortest(ours).is_some_and(is_long)
    })
}

/// Equal but for doubles that are the same, and that we write as short as can be.
fn read_alike(ours: &Raw, theirs: &Raw) -> bool {
    are_alike(ours, theirs, |ours, theirs| {
        let theirs = theirs.text().and_then(number::parse_double);
        shortest(ours).is_some_and(|value| theirs == Some(value))
    })
}

/// Of the same shape, and each leaf equal or excused.
fn are_alike(ours: &Raw, theirs: &Raw, excuses: fn(&Raw, &Raw) -> bool) -> bool {
    if let (Raw::Node(ours_header, ours), Raw::Node(theirs_header, theirs)) = (ours, theirs) {
        let mut pairs = ours.iter().zip(theirs);
        return ours_header == theirs_header
            && pairs.all(|(ours, theirs)| are_alike(ours, theirs, excuses));
    }
    ours == theirs || excuses(ours, theirs)
}

/// A double, if this is the shortest text of it.
fn shortest(raw: &Raw) -> Option<f64> {
    let value = raw.text().and_then(number::parse_double)?;
    let mut short = Vec::new();
    number::write_double_shortest(value, &mut short);
    (raw.text() == Some(&short)).then_some(value)
}

/// BY with a pattern that has no star: nothing to sort by.
fn sorts_by_nothing(call: &Call) -> bool {
    let by = call.windows(2).find(|pair| pair[0].eq_ignore_ascii_case(b"by"));
    by.is_some_and(|pair| !pair[1].contains(&b'*'))
}

/// Equal but for integers that are times: apart by at most `slack`, or, where they are unix times
/// in ms or a name before them says that they are ages, by the tolerance.
fn is_near(ours: &Raw, theirs: &Raw, slack: u64) -> bool {
    const UNIX_MS_MIN: i64 = 1_000_000_000_000;
    const AGES: [&[u8]; 4] = [b"idle", b"inactive", b"seen-time", b"active-time"];
    if let (Raw::Node(ours_header, ours), Raw::Node(theirs_header, theirs)) = (ours, theirs) {
        // An entry of XPENDING: id, consumer, how long ago, how often.
        let is_pending = ours.len() == 4 && ours[3].integer().is_some();
        let is_age = |at: usize| {
            let is_named = at > 0 && ours[at - 1].text().is_some_and(|name| AGES.contains(&name));
            is_named || (is_pending && at == 2)
        };
        let slack = |at: usize| if is_age(at) { CLOCK_TOLERANCE_MS } else { 0 };
        return ours_header == theirs_header
            && ours.len() == theirs.len()
            && (0..ours.len()).all(|at| is_near(&ours[at], &theirs[at], slack(at)));
    }
    let (Some(one), Some(other)) = (ours.integer(), theirs.integer()) else {
        return ours == theirs;
    };
    let is_moment = one > UNIX_MS_MIN && other > UNIX_MS_MIN;
    let slack = if is_moment { slack.max(CLOCK_TOLERANCE_MS) } else { slack };
    one == other || (one >= 0 && other >= 0 && one.abs_diff(other) <= slack)
}

/// A reply without these fields, in maps at any depth.
fn without(raw: &Raw, names: &[&str]) -> Raw {
    let Raw::Node(header, items) = raw else { return raw.clone() };
    let is_named = |item: &Raw| {
        item.text().is_some_and(|text| names.iter().any(|name| name.as_bytes() == text))
    };
    let mut kept = Vec::new();
    let mut rest = items.iter();
    while let Some(item) = rest.next() {
        if is_named(item) {
            rest.next();
        } else {
            kept.push(without(item, names));
        }
    }
    let per_count = if header.starts_with(b"%") { 2 } else { 1 };
    let header = match kept.len() == items.len() {
        true => header.clone(),
        false => format!("{}{}\r\n", char::from(header[0]), kept.len() / per_count).into_bytes(),
    };
    Raw::Node(header, kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Raw {
        Raw::parse(text.as_bytes()).expect("complete").0
    }

    #[test]
    fn a_rule_holds_for_its_peer_and_where_it_is_needed() {
        let rule = |name| INTENDED.iter().find(|rule| rule.name == name).expect(name);
        let terms = |peer, mixes| Terms { peer, mixes };
        assert!(MIXED.iter().all(|name| !rule(name).holds(terms(Peer::Redis, false))));
        assert!(rule("written-key").holds(terms(Peer::Redis, true)));
        assert!(!rule("written-key").holds(terms(Peer::Valkey, true)));
        assert!(rule("help").holds(terms(Peer::Valkey, false)));
    }

    #[test]
    fn only_times_may_be_apart() {
        let near = |one: &str, other: &str| is_near(&parse(one), &parse(other), 0);
        let pending =
            |idle: i64, count: i64| format!("*4\r\n+1-1\r\n+c\r\n:{idle}\r\n:{count}\r\n");
        assert!(near(&pending(10, 1), &pending(12, 1)));
        assert!(!near(&pending(10, 1), &pending(10, 2)));
        assert!(!near(&pending(10, 1), &pending(60_000, 1)));
        assert!(near("*2\r\n+idle\r\n:5\r\n", "*2\r\n+idle\r\n:9\r\n"));
        assert!(!near("*2\r\n+pending\r\n:5\r\n", "*2\r\n+pending\r\n:9\r\n"));
        assert!(near("*1\r\n:1700000000000\r\n", "*1\r\n:1700000000009\r\n"));
    }

    #[test]
    fn only_the_text_of_a_double_may_be_another() {
        let alike = |one: &str, other: &str| read_alike(&parse(one), &parse(other));
        assert!(alike("$18\r\n1076129903063676.8\r\n", "$18\r\n1076129903063676.7\r\n"));
        assert!(alike("*2\r\n+a\r\n,0.1\r\n", "*2\r\n+a\r\n,0.10000000000000001\r\n"));
        assert!(!alike("$4\r\n0.10\r\n", "$3\r\n0.1\r\n") && !alike("+a\r\n", "+b\r\n"));
        assert!(!alike("$3\r\n0.1\r\n", "$3\r\n0.2\r\n"));
    }

    #[test]
    fn no_two_rules_have_one_name() {
        let mut names: Vec<&str> = NORMAL.iter().chain(INTENDED).map(|rule| rule.name).collect();
        names.sort_unstable();
        assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
    }

    #[test]
    fn fields_are_left_out_at_any_depth() {
        let full = parse("*2\r\n+a\r\n%2\r\n+x\r\n:1\r\n+y\r\n:2\r\n");
        assert_eq!(without(&full, &["y"]), parse("*2\r\n+a\r\n%1\r\n+x\r\n:1\r\n"));
        assert_eq!(without(&full, &["z"]), full);
    }
}
