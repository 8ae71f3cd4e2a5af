//! ACL CAT, DRYRUN, GENPASS, LOG: about rules, and about what they have denied.

use kvasir_acl::call::Call;
use kvasir_acl::check::check;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Spec};
use kvasir_reactor::random;
use kvasir_resp::number::parse_integer;
use kvasir_table::categories::{categories, every_category};

use crate::commands::acl::BLANK;
use crate::commands::{ANY_TIME_NOSCRIPT, is_word, unknown_word};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};

pub static ACL_CAT: ServerCommand = ServerCommand {
    spec: Spec {
        name: "cat",
        summary: "Names the categories of commands, or the commands of one.",
        complexity: "O(N) in the number of commands",
        arity: -2,
        flags: ANY_TIME_NOSCRIPT,
        arguments: &[Argument::string("category").optional()],
        ..BLANK
    },
    run: ServerRun::Plain(cat),
};

fn cat(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let entries = cx.shared.table.entries();
    let names = every_category(&entries[0]).map(|(name, _)| name);
    let listed: Vec<&str> = match cx.args.len() {
        2 => names.to_vec(),
        3 => {
            let wanted = names.into_iter().find(|name| is_word(&cx.args[2], name));
            let unknown = || Error::quoting("ERR Unknown category '", &cx.args[2], "'");
            let wanted = wanted.ok_or_else(unknown)?;
            let members = entries.iter().filter(|entry| categories(entry).contains(&wanted));
            members.map(|entry| entry.full_name.as_str()).collect()
        }
        _ => return Err(unknown_word("ACL", &cx.args[1])),
    };
    cx.reply().array(listed.len());
    listed.iter().for_each(|name| cx.reply().bulk(name.as_bytes()));
    Ok(())
}

pub static ACL_DRYRUN: ServerCommand = ServerCommand {
    spec: Spec {
        name: "dryrun",
        summary: "Tells whether a user may make a call, without making it.",
        since: "7.0.0",
        arity: -4,
        arguments: &[
            Argument::string("username"),
            Argument::string("command"),
            Argument::string("arg").optional().multiple(),
        ],
        ..BLANK
    },
    run: ServerRun::Plain(dry_run),
};

fn dry_run(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (name, args) = (&cx.args[2], cx.args.from(3));
    let unknown_user = || Error::quoting("ERR User '", name, "' not found");
    let user = cx.shared.acl.find(name).ok_or_else(unknown_user)?;
    let unknown_command = |_| Error::quoting("ERR Command '", &args[0], "' not found");
    let entry = cx.shared.table.resolve(args).map_err(unknown_command)?;
    if !entry.spec.accepts_count(args.len()) {
        return Err(Error::wrong_arity(&entry.full_name));
    }
    let databases = cx.core.config.databases;
    let call = Call { entry, args, db: cx.connection.db, databases };
    match check(&user, &call) {
        Ok(()) => cx.reply().ok(),
        Err(denied) => cx.reply().bulk(&denied.explain(&user, &call)),
    }
    Ok(())
}

pub static ACL_GENPASS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "genpass",
        summary: "Makes a password that nobody can guess.",
        arity: -2,
        flags: ANY_TIME_NOSCRIPT,
        arguments: &[Argument::integer("bits").optional()],
        ..BLANK
    },
    run: ServerRun::Plain(generate_password),
};

const PASSWORD_BITS: i64 = 256;
const PASSWORD_BITS_MAX: usize = 4096;

/// Hexadecimal digits, of four bits each.
fn generate_password(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let bits = match cx.args.len() {
        2 => PASSWORD_BITS,
        3 => parse_integer(&cx.args[2]).ok_or(Error::NOT_INTEGER)?,
        _ => return Err(unknown_word("ACL", &cx.args[1])),
    };
    let bits = usize::try_from(bits).ok().filter(|bits| (1..=PASSWORD_BITS_MAX).contains(bits));
    let bits = bits.ok_or(Error::fixed(
        "ERR ACL GENPASS argument must be the number of bits for the output password, a positive \
         number up to 4096",
    ))?;
    let len = bits.div_ceil(4);
    let mut bytes = vec![0; len.div_ceil(2)];
    random::fill(&mut bytes).map_err(|error| Error::new(format!("ERR no randomness: {error}")))?;
    let mut digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.truncate(len);
    cx.reply().bulk(digits.as_bytes());
    Ok(())
}

pub static ACL_LOG: ServerCommand = ServerCommand {
    spec: Spec {
        name: "log",
        summary: "Tells what was denied lately, or forgets it.",
        complexity: "O(N) in the number of entries shown",
        arity: -2,
        history: &[("7.2.0", "Tells each entry's number, and when it was made and changed.")],
        arguments: &[Argument::one_of(
            "operation",
            &[Argument::integer("count"), Argument::word("reset", "RESET")],
        )
        .optional()],
        ..BLANK
    },
    run: ServerRun::Plain(log),
};

const LOG_COUNT: i64 = 10;

fn log(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let count = match cx.args.len() {
        2 => LOG_COUNT,
        3 if is_word(&cx.args[2], "reset") => {
            cx.shared.acl.log().clear();
            cx.reply().ok();
            return Ok(());
        }
        3 => parse_integer(&cx.args[2]).ok_or(Error::NOT_INTEGER)?,
        _ => return Err(unknown_word("ACL", &cx.args[1])),
    };
    let (shared, now_ms) = (cx.shared, cx.core.env.now_ms);
    let count = usize::try_from(count).unwrap_or(0);
    shared.acl.log().write(cx.reply(), count, now_ms);
    Ok(())
}
