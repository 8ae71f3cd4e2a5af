//! MIGRATE: moves keys to another server, which this one cannot do yet.

use kvasir_resp::args::Args;

use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::effect::Effect;
use crate::error::Error;
use crate::spec::{Argument, Begin, Categories, Find, Flags, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&MIGRATE];

const MOVED: KeyFlags = KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE);

static MIGRATE: Command = Command {
    spec: Spec {
        name: "migrate",
        summary: "Moves keys to another server.",
        since: "2.6.0",
        complexity: "That of DUMP and DEL here, and of RESTORE there; O(N) in the bytes sent.",
        arity: -6,
        flags: Flags::WRITE,
        categories: Categories::DANGEROUS,
        keys: &[
            KeySpec::range(MOVED, 3, 0, 1),
            KeySpec {
                flags: MOVED.union(KeyFlags::INCOMPLETE),
                notes: None,
                begin: Begin::Keyword { word: "KEYS", from: -2 },
                find: Find::Range { last: -1, step: 1, limit: 0 },
            },
        ],
        tips: &["nondeterministic_output"],
        history: &[
            ("3.0.0", "The words `COPY` and `REPLACE`."),
            ("3.0.6", "The word `KEYS`."),
            ("4.0.7", "The word `AUTH`."),
            ("6.0.0", "The word `AUTH2`."),
        ],
        arguments: &[
            Argument::string("host"),
            Argument::integer("port"),
            Argument::one_of(
                "key_or_empty_string",
                &[Argument::key("key", 0), Argument::word("empty_string", "")],
            ),
            Argument::integer("destination-db"),
            Argument::integer("timeout"),
            Argument::word("copy", "COPY").since("3.0.0").optional(),
            Argument::word("replace", "REPLACE").since("3.0.0").optional(),
            Argument::one_of(
                "authentication",
                &[
                    Argument::string("password").token("AUTH").since("4.0.7").optional(),
                    Argument::block(
                        "username_password",
                        &[Argument::string("username"), Argument::string("password")],
                    )
                    .token("AUTH2")
                    .since("6.0.0")
                    .optional(),
                ],
            )
            .optional(),
            Argument::key("key", 1).token("KEYS").since("3.0.6").optional().multiple(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(migrate),
};

/// Where nothing is to be moved the answer is Redis's; else it is an error, and the keys stay.
fn migrate(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    check_options(cx.args)?;
    integer(&cx.args[5])?;
    integer(&cx.args[4])?;
    let has_any = (0..cx.view.key_count()).any(|key| cx.view.exists(key));
    if has_any {
        return Err(Error::fixed(
            "ERR This server cannot move keys yet. DUMP and RESTORE copy them.",
        ));
    }
    cx.reply.simple("NOKEY");
    Ok(Effect::None)
}

fn check_options(args: Args<'_>) -> Result<(), Error> {
    let mut words = args.from(6).iter();
    while let Some(word) = words.next() {
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        if is(b"copy") || is(b"replace") {
            continue;
        } else if is(b"auth") {
            words.next().ok_or(Error::SYNTAX)?;
        } else if is(b"auth2") {
            words.next().and(words.next()).ok_or(Error::SYNTAX)?;
        } else if is(b"keys") {
            return match args[3].is_empty() {
                true => Ok(()),
                false => Err(KEY_AND_KEYS),
            };
        } else {
            return Err(Error::SYNTAX);
        }
    }
    Ok(())
}

const KEY_AND_KEYS: Error = Error::fixed(
    "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
);

#[cfg(test)]
mod tests {
    use crate::testing::{check, check_ours};

    #[test]
    fn nothing_to_move() {
        check(
            "MIGRATE h 1 none 0 9; MIGRATE h 1 none 0 9 COPY REPLACE AUTH p; \
             MIGRATE h 1 none 0 9 AUTH2 u p; MIGRATE h x none 0 9",
            "+NOKEY; +NOKEY; +NOKEY; +NOKEY",
        );
        let number = "-ERR value is not an integer or out of range";
        check(
            "MIGRATE h 1 k x 9; MIGRATE h 1 k 0 x; MIGRATE h 1 k 0",
            &format!("{number}; {number}; -ERR wrong number of arguments for 'migrate' command"),
        );
        let both = "-ERR When using MIGRATE KEYS option, the key argument must be set to the empty \
                    string";
        check(
            "MIGRATE h 1 k 0 9 x; MIGRATE h 1 k 0 9 AUTH; MIGRATE h 1 k 0 9 KEYS a; \
             MIGRATE h 1 k 0 9 AUTH2 u",
            &format!("-ERR syntax error; -ERR syntax error; {both}; -ERR syntax error"),
        );
    }

    /// There it would fail to connect.
    #[test]
    fn nothing_is_moved() {
        let refused = "-ERR This server cannot move keys yet. DUMP and RESTORE copy them.";
        check_ours(
            "SET k v; MIGRATE h 1 k 0 9; MIGRATE h 1 \"\" 0 9 KEYS a k; GET k",
            &format!("+OK; {refused}; {refused}; $v"),
        );
    }
}
