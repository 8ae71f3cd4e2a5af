//! Calls that the command logs are told of.

use kvasir_keyspace::spec::Flags;

use crate::clients::command_log::{Kind, Noted};
use crate::state::core::Core;
use crate::state::shared::Shared;

/// A call took so long.
pub fn note_slow(shared: &Shared, core: &Core, call: &Noted<'_>, us: u64) {
    let (flags, time_s) = (call.entry.spec.flags, core.env.now_ms / 1000);
    if us >= core.thresholds.slow_us && !flags.contains(Flags::SKIP_SLOWLOG) {
        shared.command_logs.add((Kind::Slow, us), call, time_s, &core.config);
    }
    if us >= core.thresholds.latency_us {
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
        let large = (Kind::LargeRequest, request);
        shared.command_logs.add(large, call, time_s, &core.config);
    }
    if reply >= core.thresholds.reply_len {
        let large = (Kind::LargeReply, reply);
        shared.command_logs.add(large, call, time_s, &core.config);
    }
}
