//! INFO. What its sections hold stands in `crate::info`.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Categories, Group, Spec};

use crate::commands::ANY_TIME;
use crate::info::{Source, report};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};

pub static COMMANDS: &[&ServerCommand] = &[&INFO];

static INFO: ServerCommand = ServerCommand {
    spec: Spec {
        name: "info",
        summary: "Tells facts and figures about the server, section by section.",
        group: Group::Server,
        arity: -1,
        flags: ANY_TIME,
        categories: Categories::DANGEROUS,
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        history: &[("7.0.0", "Takes more than one section.")],
        arguments: &[Argument::string("section").optional().multiple()],
        ..Spec::BLANK
    },
    run: ServerRun::Plain(info),
};

fn info(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let words: Vec<&[u8]> = cx.args.from(1).iter().collect();
    let text = report(&source(cx), &words);
    cx.reply().verbatim(b"txt", &text);
    Ok(())
}

pub fn source<'a>(cx: &'a ServerCx<'_>) -> Source<'a> {
    Source {
        shared: cx.shared,
        config: &cx.core.config,
        pass: cx.inside.pass(),
        counted: None,
        now_ms: cx.core.env.now_ms,
    }
}
