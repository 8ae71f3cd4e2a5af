//! MODULE: there are no modules. A server of native code for others' commands this is not.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Flags, Group, Spec};

use crate::commands::{help_spec, write_help};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};

pub static COMMANDS: &[&ServerCommand] = &[&MODULE];

const ADMIN: Flags = Flags::ADMIN.union(Flags::NOSCRIPT);

/// Most of the family's rows.
const OF_MODULE: Spec = Spec {
    since: "4.0.0",
    group: Group::Server,
    flags: ADMIN.union(Flags::NO_ASYNC_LOADING),
    ..Spec::BLANK
};

static MODULE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "module",
        summary: "Commands about modules.",
        complexity: "Depends on subcommand.",
        arity: -2,
        flags: Flags::empty(),
        ..OF_MODULE
    },
    run: ServerRun::Container(&[
        &MODULE_HELP,
        &MODULE_LIST,
        &MODULE_LOAD,
        &MODULE_LOADEX,
        &MODULE_UNLOAD,
    ]),
};

static MODULE_LIST: ServerCommand = ServerCommand {
    spec: Spec {
        name: "list",
        summary: "Lists the modules: there are none.",
        complexity: "O(N) in the number of modules",
        arity: 2,
        flags: ADMIN,
        tips: &["nondeterministic_output_order"],
        ..OF_MODULE
    },
    run: ServerRun::Plain(|cx| {
        cx.reply().array(0);
        Ok(())
    }),
};

static MODULE_LOAD: ServerCommand = ServerCommand {
    spec: Spec {
        name: "load",
        summary: "Loads a module: an error, always.",
        arity: -3,
        arguments: &[Argument::string("path"), Argument::string("arg").optional().multiple()],
        ..OF_MODULE
    },
    run: ServerRun::Plain(refuse),
};

static MODULE_LOADEX: ServerCommand = ServerCommand {
    spec: Spec {
        name: "loadex",
        summary: "Loads a module with options: an error, always.",
        since: "7.0.0",
        arity: -3,
        arguments: &[
            Argument::string("path"),
            Argument {
                multiple_token: true,
                ..Argument::block("configs", &[Argument::string("name"), Argument::string("value")])
                    .token("CONFIG")
                    .optional()
                    .multiple()
            },
            Argument::block("args", &[Argument::string("arg")]).token("ARGS").optional().multiple(),
        ],
        ..OF_MODULE
    },
    run: ServerRun::Plain(refuse),
};

static MODULE_UNLOAD: ServerCommand = ServerCommand {
    spec: Spec {
        name: "unload",
        summary: "Unloads a module: an error, always.",
        arity: 3,
        arguments: &[Argument::string("name")],
        ..OF_MODULE
    },
    run: ServerRun::Plain(refuse),
};

/// Redis's answer where modules are not allowed, which is its default.
fn refuse(_: &mut ServerCx<'_>) -> Result<(), Error> {
    Err(Error::fixed(
        "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", \
         you can run it from a local connection, otherwise you need to set this option in the \
         configuration file, and then restart the server.",
    ))
}

static MODULE_HELP: ServerCommand = ServerCommand {
    spec: help_spec("5.0.0", Group::Server),
    run: ServerRun::Plain(|cx| {
        write_help(&mut cx.connection.reply, "MODULE", HELP);
        Ok(())
    }),
};

static HELP: &[&str] = &["LIST", "    The modules: there are none, and none can be loaded."];
