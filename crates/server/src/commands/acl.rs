//! ACL: users, and what each may do.

use kvasir_acl::Refused;
use kvasir_acl::rule::{has_spaces, join_selectors};
use kvasir_acl::selector::Selector;
use kvasir_acl::start::grammar;
use kvasir_acl::user::User;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Group, Spec};
use kvasir_resp::reply::Reply;

use crate::commands::acl_check::{ACL_CAT, ACL_DRYRUN, ACL_GENPASS, ACL_LOG};
use crate::commands::acl_file::{ACL_LOAD, ACL_SAVE};
use crate::commands::client_kill::close;
use crate::commands::{ANY_TIME_ADMIN, ANY_TIME_NOSCRIPT, help_spec, write_help};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::run::strangers::look_after;

pub static COMMANDS: &[&ServerCommand] = &[&ACL];

static ACL: ServerCommand = ServerCommand {
    spec: Spec {
        name: "acl",
        summary: "Commands about users and their rights.",
        since: "6.0.0",
        group: Group::Server,
        complexity: "Depends on subcommand.",
        arity: -2,
        ..Spec::BLANK
    },
    run: ServerRun::Container(&[
        &ACL_CAT,
        &ACL_DELUSER,
        &ACL_DRYRUN,
        &ACL_GENPASS,
        &ACL_GETUSER,
        &ACL_HELP,
        &ACL_LIST,
        &ACL_LOAD,
        &ACL_LOG,
        &ACL_SAVE,
        &ACL_SETUSER,
        &ACL_USERS,
        &ACL_WHOAMI,
    ]),
};

/// The row from which those of the family take most.
pub const BLANK: Spec =
    Spec { since: "6.0.0", group: Group::Server, flags: ANY_TIME_ADMIN, ..Spec::BLANK };
/// Commands that change users go to every node of a cluster.
pub const EVERYWHERE: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

static ACL_SETUSER: ServerCommand = ServerCommand {
    spec: Spec {
        name: "setuser",
        summary: "Creates a user, or changes one, by rules.",
        complexity: "O(N) in the number of rules",
        arity: -3,
        tips: EVERYWHERE,
        history: &[
            ("6.2.0", "Has patterns of channels."),
            ("7.0.0", "Has selectors, and patterns of keys to read or to write."),
            ("9.1.0", "Has rules about databases."),
        ],
        arguments: &[Argument::string("username"), Argument::string("rule").optional().multiple()],
        ..BLANK
    },
    run: ServerRun::Plain(set_user),
};

fn set_user(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (args, shared) = (cx.args, cx.shared);
    let name = &args[2];
    if has_spaces(name) {
        return Err(Error::fixed("ERR Usernames can't contain spaces or null characters"));
    }
    let rules = join_selectors(args.from(3)).map_err(|unmatched| {
        let before = "ERR Unmatched parenthesis in acl selector starting at '";
        Error::quoting(before, &unmatched.0, "'.")
    })?;
    let grammar = grammar(&shared.table, &shared.config());
    let user = shared.acl.set(name, &rules, grammar).map_err(|Refused { rule, error }| {
        Error::quoting("ERR Error in ACL SETUSER modifier '", &rule, &format!("': {error}"))
    })?;
    look_after(shared, &user);
    cx.reply().ok();
    Ok(())
}

static ACL_DELUSER: ServerCommand = ServerCommand {
    spec: Spec {
        name: "deluser",
        summary: "Deletes users, and closes their connections.",
        complexity: "O(N) in the number of connections",
        arity: -3,
        tips: EVERYWHERE,
        arguments: &[Argument::string("username").multiple()],
        ..BLANK
    },
    run: ServerRun::Plain(delete_users),
};

fn delete_users(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let names = cx.args.from(2);
    if names.iter().any(|name| name == b"default") {
        return Err(Error::fixed("ERR The 'default' user cannot be removed"));
    }
    let deleted = cx.shared.acl.delete(names.iter());
    deleted.iter().for_each(|user| close_connections_of(cx, &user.name));
    cx.reply().integer(deleted.len() as i64);
    Ok(())
}

/// Closes the connections of a user that is gone. One that has just become that user's, and is
/// missed here, finds out by its next call.
pub fn close_connections_of(cx: &mut ServerCx<'_>, name: &[u8]) {
    for client in cx.shared.clients.all() {
        let is_of_user = client.names().user == name;
        if is_of_user {
            close(cx, &client);
        }
    }
}

static ACL_GETUSER: ServerCommand = ServerCommand {
    spec: Spec {
        name: "getuser",
        summary: "Tells what is known of a user.",
        complexity: "O(N) in the number of the user's passwords and rules",
        arity: 3,
        history: &[
            ("6.2.0", "Tells the patterns of channels."),
            ("7.0.0", "Tells the selectors; patterns are rules, no longer lists."),
            ("9.1.0", "Tells the databases."),
        ],
        arguments: &[Argument::string("username")],
        ..BLANK
    },
    run: ServerRun::Plain(|cx| {
        match cx.shared.acl.find(&cx.args[2]) {
            Some(user) => write_user(cx.reply(), &user),
            None => cx.reply().null(),
        }
        Ok(())
    }),
};

fn write_user(reply: &mut Reply, user: &User) {
    reply.map(7);
    reply.bulk(b"flags");
    reply.set(1 + usize::from(user.takes_any_password));
    reply.bulk(if user.is_on { b"on" } else { b"off" });
    if user.takes_any_password {
        reply.bulk(b"nopass");
    }
    reply.bulk(b"passwords");
    reply.array(user.passwords.len());
    user.passwords.iter().for_each(|hash| reply.bulk(hash.to_hex().as_bytes()));
    write_selector(reply, &user.root);
    reply.bulk(b"selectors");
    reply.array(user.selectors.len());
    for selector in &user.selectors {
        reply.map(4);
        write_selector(reply, selector);
    }
}

fn write_selector(reply: &mut Reply, selector: &Selector) {
    let fields = [
        ("commands", selector.commands.rules().join(&b' ')),
        ("keys", selector.keys.rules().join(&b' ')),
        ("channels", selector.channels.rules().join(&b' ')),
        ("databases", selector.databases.describe().into_bytes()),
    ];
    for (field, rules) in fields {
        reply.bulk(field.as_bytes());
        reply.bulk(&rules);
    }
}

static ACL_LIST: ServerCommand = ServerCommand {
    spec: Spec {
        name: "list",
        summary: "Lists the users, each as a line of the ACL file.",
        complexity: "O(N) in the number of users",
        arity: 2,
        ..BLANK
    },
    run: ServerRun::Plain(|cx| {
        let users = cx.shared.acl.all();
        cx.reply().array(users.len());
        users.iter().for_each(|user| cx.reply().bulk(&user.describe()));
        Ok(())
    }),
};

static ACL_USERS: ServerCommand = ServerCommand {
    spec: Spec {
        name: "users",
        summary: "Names the users.",
        complexity: "O(N) in the number of users",
        arity: 2,
        ..BLANK
    },
    run: ServerRun::Plain(|cx| {
        let users = cx.shared.acl.all();
        cx.reply().array(users.len());
        users.iter().for_each(|user| cx.reply().bulk(&user.name));
        Ok(())
    }),
};

static ACL_WHOAMI: ServerCommand = ServerCommand {
    spec: Spec {
        name: "whoami",
        summary: "Names the connection's user.",
        arity: 2,
        flags: ANY_TIME_NOSCRIPT,
        ..BLANK
    },
    run: ServerRun::Plain(|cx| {
        let user = std::sync::Arc::clone(cx.connection.access.user());
        cx.reply().bulk(&user.name);
        Ok(())
    }),
};

static ACL_HELP: ServerCommand = ServerCommand {
    spec: help_spec("6.0.0", Group::Server),
    run: ServerRun::Plain(|cx| {
        write_help(&mut cx.connection.reply, "ACL", HELP);
        Ok(())
    }),
};

static HELP: &[&str] = &[
    "CAT [<category>]",
    "    The categories, or the commands of one.",
    "DELUSER <username> [<username> ...]",
    "    Deletes users, and closes their connections.",
    "DRYRUN <username> <command> [<arg> ...]",
    "    Whether a user may make a call, which is not made.",
    "GENPASS [<bits>]",
    "    A password that nobody can guess; of 256 bits, or of so many.",
    "GETUSER <username>",
    "    What is known of a user.",
    "LIST",
    "    The users, each as a line of the ACL file.",
    "LOAD",
    "    Replaces the users by those of the ACL file.",
    "LOG [<count>|RESET]",
    "    What was denied lately; or forgets it.",
    "SAVE",
    "    Writes the users to the ACL file.",
    "SETUSER <username> [<rule> ...]",
    "    Creates a user, or changes one, by rules.",
    "USERS",
    "    The names of the users.",
    "WHOAMI",
    "    The name of the connection's user.",
];
