//! Comparing a string with what the caller takes it for: DELIFEQ, DELEX, DIGEST, and the
//! conditions that SET shares with DELEX.

use kvasir_structures::hash;

use crate::command::{Command, Cx, Run};
use crate::effect::{Effect, call};
use crate::error::Error;
use crate::event::Class;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::value::Text;

pub static COMMANDS: &[&Command] = &[&DELIFEQ, &DELEX, &DIGEST];

/// What a string has to be like.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Comparison<'a> {
    /// A string, or the digest of one as DIGEST tells it.
    with: &'a [u8],
    is_digest: bool,
    is_equal: bool,
}

impl<'a> Comparison<'a> {
    /// IFEQ, IFNE, IFDEQ or IFDNE, and what stands behind it.
    pub fn from_words(word: &[u8], with: &'a [u8]) -> Option<Comparison<'a>> {
        let words: [(&[u8], bool, bool); 4] = [
            (b"ifeq", false, true),
            (b"ifne", false, false),
            (b"ifdeq", true, true),
            (b"ifdne", true, false),
        ];
        let found = words.iter().find(|(name, ..)| word.eq_ignore_ascii_case(name))?;
        Some(Comparison { with, is_digest: found.1, is_equal: found.2 })
    }

    pub fn is_word(word: &[u8]) -> bool {
        Comparison::from_words(word, b"").is_some()
    }

    /// Whether a string is so. Of a digest Redis looks at the length only, and that only here.
    pub fn holds(self, text: Text<'_>) -> Result<bool, Error> {
        let is_same = if !self.is_digest {
            text.equals(self.with)
        } else if self.with.len() == DIGEST_LEN {
            digest(text).as_bytes().eq_ignore_ascii_case(self.with)
        } else {
            return Err(Error::fixed("ERR must be exactly 16 hexadecimal characters"));
        };
        Ok(is_same == self.is_equal)
    }

    /// Whether SET takes a free key for one that is so.
    pub fn holds_for_free_key(self) -> bool {
        !self.is_equal
    }
}

const DIGEST_LEN: usize = 16;

fn digest(text: Text<'_>) -> String {
    format!("{:016x}", hash::digest(&text.bytes()))
}

static DELIFEQ: Command = Command {
    spec: Spec {
        name: "delifeq",
        summary: "Deletes a key if it holds the given string.",
        since: "9.0.0",
        group: Group::String,
        arity: 3,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RM.union(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0), Argument::string("value")],
        ..Spec::BLANK
    },
    run: Run::Keys(delifeq),
};

fn delifeq(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let equal = cx.view.peek_text(0)?.is_some_and(|text| text.equals(&cx.args[2]));
    if equal {
        cx.view.delete(0);
        cx.view.changed(0, Class::GENERIC, "del");
    }
    cx.reply.integer(i64::from(equal));
    // Redis does not know the command, and need not.
    let deletion = || Effect::Rewritten(vec![call(&[b"DEL", cx.view.key(0)])]);
    Ok(if equal { deletion() } else { Effect::None })
}

static DELEX: Command = Command {
    spec: Spec {
        name: "delex",
        summary: "Deletes a key, if it holds a string as it is asked for.",
        since: "8.4.0",
        group: Group::String,
        complexity: "O(1) with IFEQ and IFNE, O(N) with IFDEQ and IFDNE where N is the length of \
                     the string.",
        arity: -2,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::first(
            KeyFlags::RW.union(KeyFlags::DELETE).union(KeyFlags::VARIABLE_FLAGS),
        )],
        arguments: &[
            Argument::key("key", 0),
            Argument::one_of(
                "condition",
                &[
                    Argument::string("ifeq-value").token("IFEQ"),
                    Argument::string("ifne-value").token("IFNE"),
                    Argument::string("ifdeq-digest").token("IFDEQ"),
                    Argument::string("ifdne-digest").token("IFDNE"),
                ],
            )
            .optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(delex),
};

fn delex(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let count = cx.args.len();
    if !matches!(count, 2 | 4) {
        return Err(Error::wrong_arity("delex"));
    }
    let deletes = cx.view.exists(0) && (count == 2 || is_met(cx)?);
    cx.reply.integer(i64::from(deletes));
    if !deletes {
        return Ok(Effect::None);
    }
    cx.view.delete(0);
    cx.view.changed(0, Class::GENERIC, "del");
    // Followers of every make and age know DEL.
    Ok(Effect::Rewritten(vec![call(&[b"DEL", cx.view.key(0)])]))
}

/// Whether a key that is there is as DELEX asks for.
fn is_met(cx: &mut Cx<'_, '_>) -> Result<bool, Error> {
    let args = cx.args;
    let other = Error::fixed("ERR Key should be of string type if conditions are specified");
    let Some(text) = cx.view.peek_text(0).map_err(|_| other)? else { return Ok(false) };
    let unknown = Error::fixed("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE");
    Comparison::from_words(&args[2], &args[3]).ok_or(unknown)?.holds(text)
}

static DIGEST: Command = Command {
    spec: Spec {
        name: "digest",
        summary: "Returns the XXH3 hash of a string, as 16 hexadecimal digits.",
        since: "8.4.0",
        group: Group::String,
        complexity: "O(N) where N is the length of the string.",
        arity: 2,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BLANK
    },
    run: Run::Keys(digest_of_key),
};

fn digest_of_key(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    match cx.view.text(0)? {
        Some(text) => cx.reply.bulk(digest(text).as_bytes()),
        None => cx.reply.null(),
    }
    Ok(Effect::None)
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::{Effect, call};
    use crate::testing::events::{check_our_events, check_valkey_events};
    use crate::testing::{Bench, check_ours, check_valkey, check_valkey3, split};

    #[test]
    fn delifeq() {
        check_valkey(
            "DELIFEQ k v; SET k v; DELIFEQ k w; DELIFEQ k v; EXISTS k; DELIFEQ k v",
            ":0; +OK; :0; :1; :0; :0",
        );
        check_valkey("SET k 12; DELIFEQ k 012; DELIFEQ k 12", "+OK; :0; :1");
        check_valkey("SET k v PXAT 1; DELIFEQ k v", "+OK; :0");
        check_valkey("SETRANGE k 20000 x; DELIFEQ k x; STRLEN k", ":20001; :0; :20001");
        check_valkey3("SET k ''; DELIFEQ k ''; DELIFEQ k ''", "+OK; :1; :0");
        check_valkey(
            "HSET h f v; DELIFEQ h v; DELIFEQ h; DELIFEQ h v w",
            ":1; -WRONGTYPE Operation against a key holding the wrong kind of value; \
             -ERR wrong number of arguments for 'delifeq' command; \
             -ERR wrong number of arguments for 'delifeq' command",
        );
    }

    #[test]
    fn events_of_comparing() {
        check_valkey_events(
            "SET k v; DELIFEQ k w; DELIFEQ k v; DELIFEQ k v",
            "new k, set k; ; del k; ",
        );
    }

    const HELLO: &str = "9555e8555c62dcfd";
    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    /// As Redis 8.4 has them.
    #[test]
    fn digests() {
        check_ours(
            "SET k hello; DIGEST k; SET k ''; DIGEST k; SET k 123; DIGEST k; SET k v8; DIGEST k; \
             DIGEST none; RPUSH l a; DIGEST l; DIGEST; DIGEST k k",
            &format!(
                "+OK; ${HELLO}; +OK; $2d06800538d394c2; +OK; $404a763b3f4c8c9a; +OK; \
                 $0cc76dbb41381419; _; :1; {WRONG_TYPE}; -ERR wrong number of arguments for \
                 'digest' command; -ERR wrong number of arguments for 'digest' command"
            ),
        );
        check_ours(
            "SET k v8lf0c11xh8ymlqztfd3eeq16kfn4sspw7fqmnuuq3k3t75em5wdizgcdw7uc26nnf961u2jkfzkj\
             ytls2kwlj7626sd; DIGEST k",
            "+OK; $00006c38adf31777",
        );
    }

    #[test]
    fn delex_asks_what_the_string_is() {
        check_ours(
            "SET k hello; DELEX k IFEQ other; DELEX k ifne hello; DELEX k IfNe other; EXISTS k; \
             SET k 0123; DELEX k IFEQ 123; DELEX k IFEQ 0123; DELEX k; RPUSH l a; DELEX l; \
             EXISTS l; SET k ''; DELEX k IFEQ ''; SET k 7; DELEX k IFNE 7; DELEX k",
            "+OK; :0; :0; :1; :0; +OK; :0; :1; :0; :1; :1; :0; +OK; :1; +OK; :0; :1",
        );
        check_ours(
            &format!(
                "SET k hello; DELEX k IFDEQ 0000000000000000; DELEX k IFDNE {HELLO}; DELEX k \
                 IFDNE {0}; DELEX k IFDEQ {0}; SET k hello; DELEX k IFDEQ zzzzzzzzzzzzzzzz; \
                 DELEX k IFDNE zzzzzzzzzzzzzzzz; EXISTS k",
                HELLO.to_uppercase()
            ),
            "+OK; :0; :0; :0; :1; +OK; :0; :1; :0",
        );
        let arity = "-ERR wrong number of arguments for 'delex' command";
        let digest = "-ERR must be exactly 16 hexadecimal characters";
        let kind = "-ERR Key should be of string type if conditions are specified";
        check_ours(
            "DELEX none FOO v; DELEX none IFDEQ 1; DELEX none IFEQ; SET k v; DELEX k IFEQ v w; \
             DELEX k FOO v; DELEX k IFDEQ ''; DELEX k IFDNE 123; DELEX k IFDEQ 09555e8555c62dcfd; \
             RPUSH l a; DELEX l IFEQ a; DELEX l FOO a; DELEX l IFDEQ a; EXISTS k l",
            &format!(
                ":0; :0; {arity}; +OK; {arity}; -ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or \
                 IFDNE; {digest}; {digest}; {digest}; :1; {kind}; {kind}; {kind}; :2"
            ),
        );
    }

    #[test]
    fn set_asks_what_the_string_is() {
        check_ours(
            "SET k a IFNE x; SET k b IFNE a; SET k b IFNE x GET; GET k; SET n v IFNE '' GET; GET \
             n; SET k c ifne x EX 100; TTL k; SET k d KEEPTTL IFNE x; TTL k; SET k c IFNE d GET",
            "+OK; _; $a; $b; _; $v; +OK; :100; +OK; :100; $d",
        );
        check_ours(
            &format!(
                "SET none v IFDEQ 1; SET m v IFDNE 1; SET k hello; SET k w IFDNE {HELLO}; SET k w \
                 IFDEQ 0000000000000000; SET k w IFDEQ {HELLO} GET; GET k; SET k hello IFDNE \
                 {HELLO}; SET k x IFDEQ {HELLO} PX 100000; TTL k; SET k x IFDEQ 12; SET k x IFDNE \
                 12 GET; GET k; EXISTS none m"
            ),
            "_; +OK; +OK; _; _; $hello; $w; +OK; +OK; :100; -ERR must be exactly 16 hexadecimal \
             characters; -ERR must be exactly 16 hexadecimal characters; $x; :1",
        );
        for options in ["IFNE v NX", "XX IFNE v", "IFNE", "IFNE v IFNE v", "IFDEQ v IFEQ v"] {
            check_ours(&format!("SET k w {options}"), "-ERR syntax error");
        }
        check_ours(
            "RPUSH l a; SET l v IFNE v; SET l v IFDEQ 1; SET l v IFDNE 1; TYPE l",
            &format!(":1; {WRONG_TYPE}; {WRONG_TYPE}; {WRONG_TYPE}; +list"),
        );
    }

    #[test]
    fn the_log_has_what_older_followers_know() {
        let mut bench = Bench::new(Protocol::Resp2);
        let mut effect = |call: &str| bench.call(split(call)[0].as_args()).1;
        let rewritten = |text: &str| {
            Effect::Rewritten(vec![call(&text.split(' ').map(str::as_bytes).collect::<Vec<_>>())])
        };
        assert_eq!(effect("SET k v IFNE x"), rewritten("SET k v"));
        assert_eq!(effect("SET k w IFEQ v GET KEEPTTL"), rewritten("SET k w KEEPTTL"));
        assert_eq!(effect("SET k w IFEQ v"), Effect::None);
        assert_eq!(effect("DELEX k IFEQ v"), Effect::None);
        assert_eq!(effect("DELEX k IFNE v"), rewritten("DEL k"));
        assert_eq!(effect("DELEX k"), Effect::None);
    }

    #[test]
    fn events_of_digests_and_conditions() {
        check_our_events(
            "SET k v; DIGEST k; DIGEST n; DELEX n; DELEX k IFEQ w; DELEX k IFEQ v; SET k v IFNE \
             v; SET k w IFNE x EX 9; SET k v IFDNE 0000000000000000; RPUSH l a; DELEX l",
            "new k, set k; ; keymiss n; ; ; del k; new k, set k; set k, expire k; set k; new l, \
             rpush l; del l",
        );
    }
}
