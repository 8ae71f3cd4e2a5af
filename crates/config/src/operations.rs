//! The rows of the option table that are about the process, its log, and what people watch.

use crate::kind::{Kind, Value};
use crate::row::{Group, Row};
use crate::table::{field, integer};
use crate::{
    LogFormat, Loglevel, OomScoreAdj, Supervised, SyslogFacility, TimestampFormat, metrics,
};

pub static OPTIONS: &[Row] = &[
    Row::new(
        "dir",
        Group::Process,
        Kind::Text,
        ".",
        field!(dir),
        "Directory to work in; relative paths of other options start there.",
    )
    .protected()
    .check(check_dir),
    Row::new(
        "availability-zone",
        Group::Process,
        Kind::Text,
        "",
        field!(availability_zone),
        "\
Where the machine stands, for clients that like to read nearby: INFO and HELLO
tell it. Empty: it is not told.",
    ),
    Row::new(
        "loglevel",
        Group::Process,
        Kind::Choice(Loglevel::WORDS),
        "notice",
        field!(loglevel),
        "\
Least severe messages to log; `debug` logs all, `warning` only the gravest,
`nothing` none.",
    ),
    Row::new(
        "log-format",
        Group::Process,
        Kind::Choice(LogFormat::WORDS),
        "legacy",
        field!(log_format),
        "\
How a line of the log looks: as in redis-server (`legacy`), as `key=value` pairs
(`logfmt`), or as one JSON object (`json`).",
    ),
    Row::new(
        "log-timestamp-format",
        Group::Process,
        Kind::Choice(TimestampFormat::WORDS),
        "legacy",
        field!(log_timestamp_format),
        "\
How the log writes times: `21 Nov 2026 11:50:54.400` (`legacy`), with date, time
and zone by ISO 8601 (`iso8601`), or as milliseconds since 1970.",
    ),
    Row::new(
        "logfile",
        Group::Process,
        Kind::Text,
        "",
        field!(logfile),
        "File that messages are appended to. Empty: standard output.",
    )
    .at_start(),
    Row::new(
        "pidfile",
        Group::Process,
        Kind::Text,
        "",
        field!(pidfile),
        "File that holds the process id while the server runs. Empty: none.",
    )
    .at_start(),
    Row::new(
        "run-as-user",
        Group::Process,
        Kind::Text,
        "",
        field!(run_as_user),
        "\
Who the server becomes if root has started it, with that user's groups, by its
name in /etc/passwd or its number: before it opens a file, or a port, so what it
writes belongs to that user, and ports below 1024 need a capability. Without
effect if another user has started it. Empty: it stays who it is.",
    )
    .at_start(),
    Row::new(
        "daemonize",
        Group::Process,
        Kind::Bool,
        "no",
        field!(daemonize),
        "\
Whether to go on in the background, detached from the terminal. Better left to
a service manager.",
    )
    .at_start(),
    Row::new(
        "shutdown-on-sigterm",
        Group::Process,
        Kind::Words,
        "default",
        field!(shutdown_on_sigterm),
        "\
How SIGTERM ends the server: `default` saves the data if there are save points,
`save` in any case, `nosave` never; with `force` the server ends also if that
fails. `now`: the end waits for no replica. `safe`: not while this node of a
cluster serves slots, but with `force`.",
    )
    .check(check_shutdown),
    Row::new(
        "shutdown-on-sigint",
        Group::Process,
        Kind::Words,
        "default",
        field!(shutdown_on_sigint),
        "How SIGINT ends the server, as `shutdown-on-sigterm`. A second ends it at once.",
    )
    .check(check_shutdown),
    Row::new(
        "always-show-logo",
        Group::Process,
        Kind::Bool,
        "no",
        field!(always_show_logo),
        "\
Whether the log begins with a banner that names mode, port and process id, which
test suites of Redis look for.",
    )
    .at_start(),
    Row::new(
        "supervised",
        Group::Process,
        Kind::Choice(Supervised::WORDS),
        "no",
        field!(supervised),
        "\
Tell the service manager that started the server when it is ready: `systemd`
needs `Type=notify`, `upstart` an `expect stop`; `auto` looks for either.",
    )
    .at_start(),
    Row::new(
        "syslog-enabled",
        Group::Process,
        Kind::Bool,
        "no",
        field!(syslog.enabled),
        "Whether messages go to the system's log as well.",
    )
    .at_start(),
    Row::new(
        "syslog-ident",
        Group::Process,
        Kind::Text,
        "kvasir",
        field!(syslog.ident),
        "The name that the system's log shows.",
    )
    .at_start(),
    Row::new(
        "syslog-facility",
        Group::Process,
        Kind::Choice(SyslogFacility::WORDS),
        "local0",
        field!(syslog.facility),
        "Where the system's log sorts the messages.",
    )
    .at_start(),
    Row::new(
        "crash-log-enabled",
        Group::Process,
        Kind::Bool,
        "yes",
        field!(crash_log_enabled),
        "\
Whether a server that fails, or that SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGABRT
ends, writes a report to its log, to be sent to those who can mend it. It holds
no keys and no values, but what a register held.",
    ),
    Row::new(
        "oom-score-adj",
        Group::Process,
        Kind::Choice(OomScoreAdj::WORDS),
        "no",
        field!(oom_score_adj),
        "\
Whether to tell the kernel how soon to kill this process when memory runs out:
`no`, `absolute` by `oom-score-adj-values`, `relative` (or `yes`) to the score
at the start.",
    ),
    Row::new(
        "oom-score-adj-values",
        Group::Process,
        Kind::Words,
        "0 200 800",
        field!(oom_score_adj_values),
        "\
The scores of a master, a replica and a background child, -2000 to 2000. There
are no children: the first one counts, for replicas too.",
    )
    .check(check_oom_scores),
    Row::new(
        "commandlog-execution-slower-than",
        Group::Monitoring,
        integer(-1, i64::MAX),
        "10000",
        field!(commandlog.execution_slower_than),
        "\
Calls that take at least so many microseconds are kept in the slow log. 0 keeps
all, -1 none. Below 1000 each call is timed by itself, which costs some 20 ns.",
    )
    .aliases(&["slowlog-log-slower-than"]),
    Row::new(
        "commandlog-slow-execution-max-len",
        Group::Monitoring,
        integer(0, i64::MAX),
        "128",
        field!(commandlog.slow_execution_max_len),
        "Entries that the slow log keeps; the oldest go first.",
    )
    .aliases(&["slowlog-max-len"]),
    Row::new(
        "commandlog-request-larger-than",
        Group::Monitoring,
        integer(-1, i64::MAX),
        "1048576",
        field!(commandlog.request_larger_than),
        "Calls of at least so many bytes are kept in the log of large requests. -1: none.",
    ),
    Row::new(
        "commandlog-large-request-max-len",
        Group::Monitoring,
        integer(0, i64::MAX),
        "128",
        field!(commandlog.large_request_max_len),
        "Entries that the log of large requests keeps.",
    ),
    Row::new(
        "commandlog-reply-larger-than",
        Group::Monitoring,
        integer(-1, i64::MAX),
        "1048576",
        field!(commandlog.reply_larger_than),
        "Calls with at least so many bytes of reply are kept in their log. -1: none.",
    ),
    Row::new(
        "commandlog-large-reply-max-len",
        Group::Monitoring,
        integer(0, i64::MAX),
        "128",
        field!(commandlog.large_reply_max_len),
        "Entries that the log of large replies keeps.",
    ),
    Row::new(
        "hotkeys-sample",
        Group::Monitoring,
        integer(0, 1_000_000),
        "0",
        field!(hotkeys_sample),
        "\
Count the keys that are used most, by one of so many calls: HOTKEYS LIST tells
them, and OBJECT FREQ of any key, so redis-cli --hotkeys works under any
maxmemory-policy. What was counted is halved every minute. 100 costs next to
nothing; each worker keeps some 1024 keys by reads, writes, bytes and time. 0:
no call is counted.",
    ),
    Row::new(
        "latency-monitor-threshold",
        Group::Monitoring,
        integer(0, i64::MAX),
        "0",
        field!(latency.monitor_threshold),
        "Events of at least so many milliseconds are kept for LATENCY. 0: none.",
    ),
    Row::new(
        "latency-tracking",
        Group::Monitoring,
        Kind::Bool,
        "yes",
        field!(latency.tracking),
        "Whether latencies are counted by command, for INFO and LATENCY HISTOGRAM.",
    ),
    Row::new(
        "latency-tracking-info-percentiles",
        Group::Monitoring,
        Kind::Percentiles,
        "50 99 99.9",
        field!(latency.tracking_info_percentiles),
        "The percentiles of INFO latencystats.",
    ),
    metrics::PORT,
    metrics::BIND,
    metrics::USER,
];

fn check_dir(value: &Value) -> Result<(), String> {
    match value {
        Value::Text(path) if path.is_empty() => Err("argument must name a directory".into()),
        _ => Ok(()),
    }
}

/// How a signal may end the server. The last is Valkey's, and asks for nothing here.
const ENDS: [&str; 7] = ["default", "save", "nosave", "now", "force", "safe", "failover"];

fn check_shutdown(value: &Value) -> Result<(), String> {
    let Value::Words(words) = value else { return Ok(()) };
    let has = |word: &str| words.iter().any(|found| found.eq_ignore_ascii_case(word));
    let is_known = |word: &String| ENDS.iter().any(|end| word.eq_ignore_ascii_case(end));
    match () {
        () if words.is_empty() || !words.iter().all(is_known) => {
            Err(format!("argument(s) must be one of the following: {}", ENDS.join(", ")))
        }
        () if has("save") && has("nosave") => {
            Err("shutdown options SAVE and NOSAVE can't be used simultaneously".into())
        }
        () => Ok(()),
    }
}

/// What the kernel takes, and what Redis lets through to be cut there.
const OOM_SCORE_MAX: i32 = 2000;

fn check_oom_scores(value: &Value) -> Result<(), String> {
    let Value::Words(words) = value else { return Ok(()) };
    if words.len() != 3 {
        return Err("wrong number of arguments".into());
    }
    let is_score = |word: &String| {
        word.parse::<i32>().is_ok_and(|score| (-OOM_SCORE_MAX..=OOM_SCORE_MAX).contains(&score))
    };
    match words.iter().all(is_score) {
        true => Ok(()),
        false => {
            Err("Invalid oom-score-adj-values, elements must be between -2000 and 2000.".into())
        }
    }
}
