//! Calls that the command logs are told of.

use kvasir_config::Config;
use kvasir_keyspace::spec::Flags;

use crate::clients::command_log::{Kind, Noted};
use crate::state::core::Core;
use crate::state::shared::Shared;
use crate::stats::timing::Thresholds;

/// What is slow, and what is kept of it.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    pub thresholds: &'a Thresholds,
    pub config: &'a Config,
}

/// A call of a worker took so long.
pub fn note_slow(shared: &Shared, core: &Core, call: &Noted<'_>, us: u64) {
    let limits = Limits { thresholds: &core.thresholds, config: &core.config };
    note_slow_at(shared, limits, call, us, core.env.now_ms);
}

/// A call took so long, and ended then.
pub fn note_slow_at(shared: &Shared, limits: Limits<'_>, call: &Noted<'_>, us: u64, now_ms: u64) {
    let Limits { thresholds, config } = limits;
    let (flags, time_s) = (call.entry.spec.flags, now_ms / 1000);
    if us >= thresholds.slow_us && !flags.contains(Flags::SKIP_SLOWLOG) {
        shared.command_logs.add(Kind::Slow, us, call, time_s, config);
    }
    if us >= thresholds.latency_us {
        let event = if flags.contains(Flags::FAST) { "fast-command" } else { "command" };
        shared.latencies.add(event, time_s, us / 1000);
    }
}

/// The request of a call or its reply, or both, were so large.
pub fn note_large(shared: &Shared, core: &Core, call: &Noted<'_>, [request, reply]: [usize; 2]) {
    if call.entry.spec.flags.contains(Flags::SKIP_SLOWLOG) {
        return;
    }
    let (request, reply, time_s) = (request as u64, reply as u64, core.env.now_ms / 1000);
    if request >= core.thresholds.request_len {
        shared.command_logs.add(Kind::LargeRequest, request, call, time_s, &core.config);
    }
    if reply >= core.thresholds.reply_len {
        shared.command_logs.add(Kind::LargeReply, reply, call, time_s, &core.config);
    }
}
