//! Sections about the process and the machine it runs on: Server, CPU.

use kvasir_config::Config;
use kvasir_reactor::{clock, limits};

use crate::info::{Lines, Source};
use crate::machine::version::REDIS_VERSION;

pub fn server(source: &Source<'_>, lines: &mut Lines) {
    let (facts, config) = (&source.shared.facts, source.config);
    let uptime_s = source.now_ms.saturating_sub(facts.started_ms) / 1000;
    lines.field("redis_version", REDIS_VERSION);
    lines.field("server_name", "kvasir");
    lines.field("kvasir_version", env!("CARGO_PKG_VERSION"));
    lines.field("redis_git_sha1", "00000000");
    lines.field("redis_git_dirty", 0);
    lines.field("redis_build_id", 0);
    let mode = if source.shared.cluster.is_some() { "cluster" } else { "standalone" };
    lines.field("redis_mode", mode);
    lines.field("server_mode", mode);
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
    lines.field("clients_hz", config.hz);
    lines.field("lru_clock", (source.now_ms / 1000) & 0xff_ffff);
    lines.field("executable", &facts.executable);
    lines.field("config_file", &facts.config_file);
    if let Some(deadline_ms) = source.shared.ending.deadline_ms() {
        let left_ms = deadline_ms.saturating_sub(source.now_ms);
        lines.field("shutdown_in_milliseconds", left_ms);
    }
    lines.field("io_threads_active", u8::from(source.shared.workers.len() > 1));
    lines.field("io_threads", source.shared.workers.len());
    lines.field("availability_zone", String::from_utf8_lossy(&config.availability_zone));
    listeners(config, lines);
}

/// Numbered by their kind, as in Valkey: TCP, unix sockets, TLS; then those of memcached.
fn listeners(config: &Config, lines: &mut Lines) {
    let bound: String = config.bind.iter().map(|address| format!(",bind={address}")).collect();
    let unix = config.unixsocket.display();
    let memcached = &config.memcached;
    let all = [
        (config.port != 0).then(|| format!("name=tcp{bound},port={}", config.port)),
        (!config.unixsocket.as_os_str().is_empty()).then(|| format!("name=unix,bind={unix}")),
        (config.tls.port != 0).then(|| format!("name=tls{bound},port={}", config.tls.port)),
        (memcached.port != 0).then(|| format!("name=memcached{bound},port={}", memcached.port)),
        (!memcached.unixsocket.as_os_str().is_empty())
            .then(|| format!("name=memcached-unix,bind={}", memcached.unixsocket.display())),
    ];
    for (number, listener) in all.into_iter().enumerate() {
        listener.iter().for_each(|facts| lines.field(&format!("listener{number}"), facts));
    }
}

/// The process has no children. Its main thread is the first worker.
pub fn cpu(_: &Source<'_>, lines: &mut Lines) {
    let (time, main) = (limits::cpu_time(), limits::cpu_time_of("worker-0"));
    let fields = [
        ("used_cpu_sys", time.system.as_secs_f64()),
        ("used_cpu_user", time.user.as_secs_f64()),
        ("used_cpu_sys_children", 0.0),
        ("used_cpu_user_children", 0.0),
        ("used_cpu_sys_main_thread", main.system.as_secs_f64()),
        ("used_cpu_user_main_thread", main.user.as_secs_f64()),
        ("used_active_time_main_thread", (main.system + main.user).as_secs_f64()),
    ];
    fields.iter().for_each(|(name, seconds)| lines.field(name, format!("{seconds:.6}")));
}

/// Certificates; the server shows none to others as their client.
pub fn tls(source: &Source<'_>, lines: &mut Lines) {
    let [own, authority] = source.shared.tls.facts();
    for (name, facts) in [("server", own), ("client", None), ("ca", authority)] {
        let serial = facts.as_ref().map_or("none", |facts| &facts.serial);
        lines.field(&format!("tls_{name}_cert_serial"), serial);
        let now_s = (source.now_ms / 1000) as i64;
        let left_s = facts.as_ref().map_or(0, |facts| facts.expiry_s as i64 - now_s);
        lines.field(&format!("tls_{name}_cert_expires_in_seconds"), left_s);
    }
}
