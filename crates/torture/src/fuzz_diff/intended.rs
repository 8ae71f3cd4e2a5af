//! Which replies may differ, and why.
//!
//! `NORMAL` holds what no two servers answer alike: order and time. `INTENDED` holds where Kvasir
//! means to differ from a peer; each entry has to be met, or it is reported as unused.

use clap::ValueEnum;
use kvasir_harness::link::Call;
use kvasir_harness::raw::Raw;

use super::alike::{
    CLOCK_TOLERANCE_MS, are, are_equal_doubles, is_near, read_alike, until_zero, without,
};
use super::script_replies::{in_words_of_valkey, with_pairs_sorted};

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

/// A reason for two replies to differ.
pub struct Rule {
    pub name: &'static str,
    pub reason: &'static str,
    /// Both peers if `None`.
    peer: Option<Peer>,
    /// Whether only scripts and questions about calls need it.
    is_of_mixes: bool,
    matches: fn(&str, &Call, &Raw, &Raw) -> bool,
}

impl Rule {
    pub fn holds(&self, terms: Terms) -> bool {
        self.peer.is_none_or(|only| only == terms.peer) && (terms.mixes || !self.is_of_mixes)
    }

    pub fn excuses(&self, name: &str, call: &Call, ours: &Raw, theirs: &Raw) -> bool {
        (self.matches)(name, call, ours, theirs)
    }

    const fn beside(self, peer: Peer) -> Rule {
        Rule { peer: Some(peer), ..self }
    }

    const fn of_mixes(self) -> Rule {
        Rule { is_of_mixes: true, ..self }
    }
}

const fn rule(
    name: &'static str,
    reason: &'static str,
    matches: fn(&str, &Call, &Raw, &Raw) -> bool,
) -> Rule {
    Rule { name, reason, peer: None, is_of_mixes: false, matches }
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
        "Kvasir counts one holder of a value; the peers share small integers between keys, and \
         count queued calls and replies on their way",
        |_, call, ours, theirs| {
            let is_held = theirs.integer().is_some_and(|holders| holders > 1);
            is_word(call, b"refcount") && ours.integer() == Some(1) && is_held
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
    rule(
        "unit-before-end",
        "BITCOUNT and BITPOS look at the unit before they look at the end, as Valkey",
        |name, _, ours, theirs| {
            matches!(name, "bitcount" | "bitpos")
                && is_error_with(ours, b"syntax error")
                && is_error_with(theirs, b"value is not an integer")
        },
    )
    .beside(Peer::Redis),
    rule(
        "groups-of-7.2",
        "since 7.2 Redis tells when a consumer was last active, and counts a group's lag \
         otherwise where entries were deleted",
        |name, _, ours, theirs| {
            const FIELDS: [&str; 5] =
                [TREE_FIELDS[0], TREE_FIELDS[1], "inactive", "active-time", "lag"];
            name == "xinfo" && {
                let [ours, theirs] = [ours, theirs].map(|raw| without(raw, &FIELDS));
                is_near(&ours, &theirs, 0)
            }
        },
    )
    .beside(Peer::Redis),
    rule("list-encoding", "small lists are listpacks since Redis 7.2", |_, call, ours, theirs| {
        is_word(call, b"encoding") && are(ours, theirs, b"listpack", b"quicklist")
    })
    .beside(Peer::Redis),
    rule("set-encoding", "small sets are listpacks since Redis 7.2", |_, call, ours, theirs| {
        is_word(call, b"encoding") && are(ours, theirs, b"listpack", b"hashtable")
    })
    .beside(Peer::Redis),
    rule(
        "sorted-set-encoding",
        "a small sorted set is made large for what a call brings since Redis 7.2",
        |_, call, ours, theirs| {
            is_word(call, b"encoding") && are(ours, theirs, b"skiplist", b"listpack")
        },
    )
    .beside(Peer::Redis),
    rule(
        "double-digits",
        "Redis before 7.2 writes a score, and a script's place, with 17 digits, Kvasir with as \
         few as are needed; and it loses the sign of -0 where a call makes a skiplist of what it \
         began as a listpack",
        |name, _, ours, theirs| {
            let has_scores = name.trim_start_matches('b').starts_with('z');
            let has_places = name.starts_with("geo");
            (has_scores || has_places) && ours != theirs && are_equal_doubles(ours, theirs)
        },
    )
    .beside(Peer::Redis),
    rule("withscore", "ZRANK knows WITHSCORE since Redis 7.2", |name, call, _, theirs| {
        let is_rank = matches!(name, "zrank" | "zrevrank");
        is_rank && call.len() == 4 && is_error_with(theirs, b"wrong number of arguments")
    })
    .beside(Peer::Redis),
    rule("unbalanced", "the error names the command since Redis 7.2", |_, _, ours, theirs| {
        is_error_with(ours, b"ERR Unbalanced 'xread")
            && is_error_with(theirs, b"ERR Unbalanced XREAD")
    })
    .beside(Peer::Redis),
    rule(
        "bits-of-nothing",
        "BITCOUNT and BITPOS look at their numbers before the key since Redis 7.2",
        |name, _, ours, theirs| {
            let is_nothing =
                matches!(theirs.integer(), Some(0 | -1)) || is_error_with(theirs, b"WRONGTYPE");
            let is_wrong = is_error_with(ours, b"syntax error")
                || is_error_with(ours, b"not an integer")
                || is_error_with(ours, b"The bit argument must be 1 or 0");
            matches!(name, "bitcount" | "bitpos") && is_nothing && is_wrong
        },
    )
    .beside(Peer::Redis),
    rule(
        "bitcount-start",
        "BITCOUNT takes a start without an end since Valkey 8.0",
        |name, call, _, theirs| {
            name == "bitcount" && call.len() == 3 && is_error_with(theirs, b"syntax error")
        },
    )
    .beside(Peer::Redis),
    rule("xread-last", "XREAD knows the ID + since Redis 7.4", |name, call, _, theirs| {
        name.starts_with("xread")
            && has_word(call, b"+")
            && is_error_with(theirs, b"Invalid stream ID specified")
    })
    .beside(Peer::Redis),
    rule(
        "keys-of-nothing",
        "COMMAND GETKEYS takes a command's name alone since Valkey 8.0",
        |name, call, _, theirs| {
            name == "command" && call.len() == 3 && is_error_with(theirs, b"wrong number of arg")
        },
    )
    .beside(Peer::Redis)
    .of_mixes(),
    rule(
        "count-with-more",
        "COMMAND GETKEYS of the peers takes a count with something behind it for a count",
        |name, call, ours, theirs| {
            let asks = is_word(call, b"getkeys") || is_word(call, b"getkeysandflags");
            let is_refused = is_error_with(ours, b"Invalid arguments specified");
            name == "command" && asks && is_refused && !theirs.is_error()
        },
    )
    .of_mixes(),
    rule(
        "written-key",
        "SINTERSTORE's first key is overwritten, which COMMAND says since Redis 7.2",
        |name, call, ours, theirs| {
            let is_store = call.get(2).is_some_and(|arg| arg.eq_ignore_ascii_case(b"sinterstore"));
            name == "command" && is_store && ours.has_shape_of(theirs)
        },
    )
    .beside(Peer::Redis)
    .of_mixes(),
    rule(
        "stored-twice",
        "of STORE and STOREDIST only the last says where GEORADIUS stores",
        |name, call, ours, theirs| {
            let stores_twice = has_word(call, b"store") && has_word(call, b"storedist");
            name == "command" && stores_twice && ours.items().len() + 1 == theirs.items().len()
        },
    )
    .beside(Peer::Redis)
    .of_mixes(),
    rule(
        "place-of-nobody",
        "the error names the member since Valkey 8.0",
        |name, _, ours, theirs| {
            name.starts_with("geo")
                && is_error_with(ours, b"ERR member ")
                && is_error_with(theirs, b"could not decode requested zset member")
        },
    )
    .beside(Peer::Redis),
    rule(
        "shortest-digits",
        "the algorithm of Valkey misses a double's shortest text now and then, or takes \
         one of two that is no nearer",
        |name, _, ours, theirs| {
            let has_scores = name.trim_start_matches('b').starts_with('z');
            has_scores && ours != theirs && read_alike(ours, theirs)
        },
    )
    .beside(Peer::Valkey),
    rule("scan-type", "SCAN knows the names of types since Valkey 8.0", |name, _, ours, theirs| {
        let is_wrong = is_error_with(theirs, b"syntax error");
        name == "scan"
            && (is_wrong || !theirs.is_error())
            && is_error_with(ours, b"unknown type name")
    })
    .beside(Peer::Redis),
    rule(
        "scan-cursor",
        "a number below 0 or an empty text is no cursor, and one behind white space is one, as in \
         Valkey 9.1",
        |name, call, ours, theirs| {
            let is_blank = |arg: &Vec<u8>| arg.first().is_some_and(u8::is_ascii_whitespace);
            let is_taken = is_error_with(theirs, b"invalid cursor") && call.iter().any(is_blank);
            name.ends_with("scan") && (is_taken || is_error_with(ours, b"invalid cursor"))
        },
    )
    .beside(Peer::Redis),
    rule(
        "getex-time",
        "GETEX looks at the time first, as in Valkey 9.1",
        |name, _, ours, theirs| {
            let is_wrong_time =
                is_error_with(ours, b"invalid expire") || is_error_with(ours, b"not an integer");
            // A script says nil.
            let is_nothing = theirs.text().is_none_or(|text| text == b"nil");
            let is_unseen = is_error_with(theirs, b"WRONGTYPE") || is_nothing;
            name == "getex" && is_unseen && is_wrong_time
        },
    )
    .beside(Peer::Redis),
    rule(
        "sort-by-nothing",
        "SORT takes a text without digits for 0, as in Redis",
        |name, _, ours, theirs| {
            matches!(name, "sort" | "sort_ro")
                && !ours.is_error()
                && is_error_with(theirs, b"scores can't be converted into double")
        },
    )
    .beside(Peer::Valkey),
    rule(
        "script-words",
        "errors of scripts have the words and the place that Redis writes",
        |_, _, ours, theirs| {
            let is_unknown = is_error_with(ours, b"Unknown Redis command called from script")
                && is_error_with(theirs, b"unknown subcommand");
            is_unknown || in_words_of_valkey(ours) == in_words_of_valkey(theirs)
        },
    )
    .beside(Peer::Valkey)
    .of_mixes(),
    rule(
        "script-numbers",
        "Valkey keeps numbers that a script stores as texts",
        |_, call, ours, theirs| {
            let is_text = are(ours, theirs, b"int", b"embstr") || are(ours, theirs, b"int", b"raw");
            is_word(call, b"encoding") && is_text
        },
    )
    .beside(Peer::Valkey)
    .of_mixes(),
    rule("script-maps", "the order of a Lua table is nobody's promise", |name, _, ours, theirs| {
        let is_map = matches!(name, "lcs" | "xinfo" | "xread" | "xreadgroup");
        is_map && with_pairs_sorted(ours) == with_pairs_sorted(theirs)
    })
    .of_mixes(),
    rule(
        "text-encoding",
        "Valkey's longest text beside its key is Valkey's, Kvasir reports Redis's",
        |_, call, ours, theirs| {
            let is_raw = are(ours, theirs, b"raw", b"embstr");
            is_word(call, b"encoding") && (is_raw || are(ours, theirs, b"embstr", b"raw"))
        },
    )
    .beside(Peer::Valkey),
];

const TREE_FIELDS: [&str; 2] = ["radix-tree-keys", "radix-tree-nodes"];

fn is_word(call: &Call, word: &[u8]) -> bool {
    call.get(1).is_some_and(|arg| arg.eq_ignore_ascii_case(word))
}

fn has_word(call: &Call, word: &[u8]) -> bool {
    call.iter().any(|arg| arg.eq_ignore_ascii_case(word))
}

fn is_error_with(reply: &Raw, words: &[u8]) -> bool {
    let text = if reply.is_error() { reply.text() } else { None };
    text.is_some_and(|text| text.windows(words.len()).any(|part| part == words))
}

/// BY with a pattern that has no star: nothing to sort by.
fn sorts_by_nothing(call: &Call) -> bool {
    let by = call.windows(2).find(|pair| pair[0].eq_ignore_ascii_case(b"by"));
    by.is_some_and(|pair| !pair[1].contains(&b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_holds_for_its_peer_and_where_it_is_needed() {
        let rule = |name| INTENDED.iter().find(|rule| rule.name == name).expect(name);
        let terms = |peer, mixes| Terms { peer, mixes };
        assert!(!rule("written-key").holds(terms(Peer::Redis, false)));
        assert!(rule("written-key").holds(terms(Peer::Redis, true)));
        assert!(!rule("written-key").holds(terms(Peer::Valkey, true)));
        assert!(rule("help").holds(terms(Peer::Valkey, false)));
    }

    #[test]
    fn no_two_rules_have_one_name() {
        let mut names: Vec<&str> = NORMAL.iter().chain(INTENDED).map(|rule| rule.name).collect();
        names.sort_unstable();
        assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
    }
}
