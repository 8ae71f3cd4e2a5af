//! `kvasir-sql`: SQL over the keys of a Kvasir, in a shell or for clients of Arrow Flight SQL.
//!
//! DataFusion plans and computes; a table is a pattern of keys, whose rows come as the record
//! batches of EXPORT from every node, and go back as pipelines of writes. A program of its own: the
//! server knows nothing of it.
#![forbid(unsafe_code)]

mod change;
mod create;
mod definition;
mod digest;
mod exact;
mod fit;
mod flags;
mod flight;
mod glob;
mod graph;
mod hold;
mod keys;
mod like;
mod names;
mod node;
mod output;
mod pull;
mod sample;
mod scan;
mod script;
mod send;
mod session;
mod shell;
mod statement;
mod sum;
mod table;
mod unsupported;
mod write;

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;

use crate::flags::{Action, Flags};
use crate::node::Node;
use crate::output::Format;
use crate::script::Script;
use crate::session::Session;

/// Plans are trees that are walked by calls; `statement.rs` bounds how deep a text can make one.
const STACK_BYTES: usize = 256 * 1024 * 1024;

fn main() -> ExitCode {
    // The thread that a process begins with has less.
    let run = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(|| run(Flags::parse()));
    let ended = run.map(std::thread::JoinHandle::join);
    let Ok(Ok(ended)) = ended else {
        // What it has panicked with has been told.
        return ExitCode::FAILURE;
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", output::shown(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn run(flags: Flags) -> anyhow::Result<()> {
    // Who uses TLS first would choose, and finds two to choose from.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()?;
    let node = Node::new(&flags.place)?;
    if let Some(Action::Serve(serve)) = &flags.action {
        return runtime.block_on(flight::serve(node, &flags, serve));
    }
    let memory = session::runtime(&flags.limits)?;
    let tell = |text: &str| eprintln!("{}", output::shown(text));
    let session = Session::new(node, &flags.limits, &memory, tell)?;
    let format = flags.format.unwrap_or(Format::Table);
    let script = Script { session, format, output: flags.output };
    let mut texts = flags.commands;
    if let Some(file) = &flags.file {
        let text = std::fs::read_to_string(file);
        texts.push(text.with_context(|| file.display().to_string())?);
    }
    if texts.is_empty() && std::io::stdin().is_terminal() {
        return shell::run(script, &runtime);
    }
    if texts.is_empty() {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        texts.push(text);
    }
    for text in texts {
        runtime
            .block_on(script.run(&text))
            .map_err(|error| anyhow::Error::msg(error.strip_backtrace()))?;
    }
    Ok(())
}
