//! Sections about the process and the machine it runs on: Server, CPU.

use kvasir_reactor::{clock, limits};

use crate::info::{Lines, Source};
use crate::machine::version::REDIS_VERSION;

pub fn server(source: &Source<'_>, lines: &mut Lines) {
    let (facts, config) = (&source.shared.facts, source.config);
    let uptime_s = source.now_ms.saturating_sub(facts.started_ms) / 1000;
    lines.field("redis_version", REDIS_VERSION);
    lines.field("kvasir_version", env!("CARGO_PKG_VERSION"));
    lines.field("redis_git_sha1", "00000000");
    lines.field("redis_git_dirty", 0);
    lines.field("redis_build_id", 0);
    lines.field("redis_mode", "standalone");
    lines.field("os", limits::system_name());
    lines.field("arch_bits", usize::BITS);
    lines.field("monotonic_clock", "POSIX clock_gettime");
    lines.field("multiplexing_api", &facts.backend);
    lines.field("process_id", limits::pid());
    lines.field("process_supervised", "no");
    lines.field("run_id", &facts.run_id);
    lines.field("tcp_port", if config.port != 0 { config.port } else { config.tls.port });
    lines.field("server_time_usec", clock::now_unix_us());
    lines.field("uptime_in_seconds", uptime_s);
    lines.field("uptime_in_days", uptime_s / 86_400);
    lines.field("hz", config.hz);
    lines.field("configured_hz", config.hz);
    lines.field("lru_clock", (source.now_ms / 1000) & 0xff_ffff);
    lines.field("executable", &facts.executable);
    lines.field("config_file", &facts.config_file);
    lines.field("io_threads_active", u8::from(source.shared.workers.len() > 1));
    lines.field("io_threads", source.shared.workers.len());
}

/// The process has no children.
pub fn cpu(_: &Source<'_>, lines: &mut Lines) {
    let time = limits::cpu_time();
    let fields = [
        ("used_cpu_sys", time.system.as_secs_f64()),
        ("used_cpu_user", time.user.as_secs_f64()),
        ("used_cpu_sys_children", 0.0),
        ("used_cpu_user_children", 0.0),
    ];
    fields.iter().for_each(|(name, seconds)| lines.field(name, format!("{seconds:.6}")));
}
