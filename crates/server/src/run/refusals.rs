//! Requests that are no calls, calls that may not run, and calls of those who are to make none.

use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::Traits;
use kvasir_resp::args::Args;
use kvasir_resp::request::ProtocolError;
use kvasir_table::{Entry, is_http, unknown_command, unknown_subcommand};

use crate::log::warning;
use crate::run::batch::{Batch, Lookahead, What};
use crate::run::runner::Runner;
use crate::run::session::SessionRun;
use crate::state::connection::Connection;
use crate::stats::errors::Author;

impl Runner<'_> {
    /// Answers a replica, which has nothing to hear but the stream.
    #[cold]
    pub(super) fn answer_replica(
        &mut self,
        connection: &mut Connection,
        batch: &Batch,
        index: usize,
        ahead: &mut Lookahead,
    ) -> Option<(&'static Entry, SessionRun)> {
        let mark = connection.reply.mark();
        let session = self.answer_call(connection, batch, index, ahead);
        if session.is_none() && connection.reply.len_since(mark) > 0 {
            let bytes = connection.reply.bytes();
            let reply = &bytes[bytes.len() - connection.reply.len_since(mark).min(bytes.len())..];
            if let Some(text) = reply.strip_prefix(b"-") {
                let text = text.trim_ascii_end().escape_ascii();
                warning!("== CRITICAL == This master is sending an error to its replica: {text}");
            }
            warning!(
                "Replica generated a reply to command '{}', disconnecting it: id={}",
                match batch.requests[index].what {
                    What::Call(command) => &self.shared.table.entries()[command as usize].full_name,
                    _ => "?",
                },
                connection.client.id
            );
            connection.reply.truncate(mark);
            connection.is_closing = true;
        }
        session
    }

    /// Answers a call that may not run.
    #[cold]
    pub(super) fn reject_call(&self, connection: &mut Connection, entry: &Entry, error: Error) {
        self.shared.workers[self.worker].stats.by_command[entry.index].rejected.add(1);
        let error = match entry.spec.traits.contains(Traits::RUNS_QUEUED) {
            true => connection.abort_exec(&self.shared.keyspace, &error),
            false => error,
        };
        self.reject(connection, &error);
    }

    /// Answers a request that is no call.
    #[cold]
    pub(super) fn refuse(&mut self, connection: &mut Connection, what: &What, args: Args<'_>) {
        match what {
            What::Call(_) | What::Item { .. } | What::Answered(_) => {
                unreachable!("a call is run")
            }
            What::UnknownCommand if is_http(args) => {
                warning!("closing a client that speaks HTTP id={}", connection.client.id);
                connection.is_closing = true;
            }
            What::UnknownCommand => self.reject(connection, &unknown_command(args)),
            What::UnknownSubcommand => self.reject(connection, &unknown_subcommand(args)),
            What::Malformed(ProtocolError::RequestTooLong) => {
                connection.close_beyond_input_limit(&self.shared.workers[self.worker].stats);
            }
            What::Malformed(error) => {
                connection.reply.protocol_error(*error);
                self.shared.count_error(self.worker, b"ERR", Author::Server);
                connection.is_closing = true;
            }
        }
    }
}
