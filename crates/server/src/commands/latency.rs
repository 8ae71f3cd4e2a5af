//! LATENCY: when the server was slow, and how slow its commands are.
//!
//! Events are kept by `crate::latency`, the commands' histograms by `crate::stats`.

use kvasir_config::Config;
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::{Argument, Group, Spec};
use kvasir_table::Entry;

use crate::commands::{ANY_TIME_ADMIN, help_spec, write_help};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::stats::histogram::Distribution;
use crate::stats::latency::Series;

pub static COMMANDS: &[&ServerCommand] = &[&LATENCY];

const SINCE: &str = "2.8.13";
/// What one node knows.
const OF_NODE: &[&str] =
    &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"];

/// Most of the family's rows.
const LOOKING: Spec = Spec {
    since: SINCE,
    group: Group::Server,
    arity: 2,
    flags: ANY_TIME_ADMIN,
    tips: OF_NODE,
    ..Spec::BLANK
};

static LATENCY: ServerCommand = ServerCommand {
    spec: Spec {
        name: "latency",
        summary: "Commands about how long things take.",
        since: SINCE,
        group: Group::Server,
        complexity: "Depends on subcommand.",
        arity: -2,
        ..Spec::BLANK
    },
    run: ServerRun::Container(&[
        &LATENCY_DOCTOR,
        &LATENCY_GRAPH,
        &LATENCY_HELP,
        &LATENCY_HISTOGRAM,
        &LATENCY_HISTORY,
        &LATENCY_LATEST,
        &LATENCY_RESET,
    ]),
};

static LATENCY_LATEST: ServerCommand = ServerCommand {
    spec: Spec {
        name: "latest",
        summary: "Tells of each event the last sample and the worst one.",
        ..LOOKING
    },
    run: ServerRun::Plain(latest),
};

/// Of each event: name, second, last and longest latency, and, as Valkey tells, sum and count.
fn latest(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let events = cx.shared.latencies.all();
    let reply = cx.reply();
    reply.array(events.len());
    for (event, series) in events {
        let last = series.samples.back().expect("a series has a sample");
        reply.array(6);
        reply.bulk(event.as_bytes());
        let longest = series.latency_ms_max;
        let numbers = [last.time_s, last.latency_ms, longest, series.latency_ms_sum, series.count];
        numbers.into_iter().for_each(|number| reply.integer(number as i64));
    }
    Ok(())
}

static LATENCY_HISTORY: ServerCommand = ServerCommand {
    spec: Spec {
        name: "history",
        summary: "Tells the samples of an event.",
        arity: 3,
        arguments: &[Argument::string("event")],
        ..LOOKING
    },
    run: ServerRun::Plain(history),
};

fn history(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let series = cx.shared.latencies.of(&cx.args[2]).map_or_else(Series::default, |(_, of)| of);
    let reply = cx.reply();
    reply.array(series.samples.len());
    for sample in series.samples {
        reply.array(2);
        reply.integer(sample.time_s as i64);
        reply.integer(sample.latency_ms as i64);
    }
    Ok(())
}

static LATENCY_GRAPH: ServerCommand = ServerCommand {
    spec: Spec {
        name: "graph",
        summary: "Draws the samples of an event.",
        arity: 3,
        arguments: &[Argument::string("event")],
        ..LOOKING
    },
    run: ServerRun::Plain(graph),
};

fn graph(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let Some((event, series)) = cx.shared.latencies.of(&cx.args[2]) else {
        return Err(Error::quoting("ERR No samples available for event '", &cx.args[2], "'"));
    };
    let text = series.graph(event, cx.core.env.now_ms / 1000);
    cx.reply().verbatim(b"txt", text.as_bytes());
    Ok(())
}

static LATENCY_RESET: ServerCommand = ServerCommand {
    spec: Spec {
        name: "reset",
        summary: "Forgets the samples of these events, or all.",
        arity: -2,
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        arguments: &[Argument::string("event").optional().multiple()],
        ..LOOKING
    },
    run: ServerRun::Plain(reset),
};

fn reset(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let events: Vec<&[u8]> = cx.args.from(2).iter().collect();
    let events = (!events.is_empty()).then_some(events.as_slice());
    let count = cx.shared.latencies.reset(events);
    cx.reply().integer(count as i64);
    Ok(())
}

static LATENCY_HISTOGRAM: ServerCommand = ServerCommand {
    spec: Spec {
        name: "histogram",
        summary: "Tells how the latencies of these commands, or of all, are distributed.",
        since: "7.0.0",
        complexity: "O(N) in the number of commands told of",
        arity: -2,
        arguments: &[Argument::string("command").optional().multiple()],
        ..LOOKING
    },
    run: ServerRun::Plain(histogram),
};

/// Commands that were never called, or are none, are left out.
fn histogram(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let shared = cx.shared;
    let told: Vec<(&Entry, Distribution)> = asked_for(cx)
        .into_iter()
        .map(|entry| (entry, shared.distribution(entry.index)))
        .filter(|(_, distribution)| distribution.calls > 0)
        .collect();
    let reply = cx.reply();
    reply.map(told.len());
    for (entry, distribution) in told {
        reply.bulk(entry.full_name.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.integer(distribution.calls as i64);
        reply.bulk(b"histogram_usec");
        let pairs = distribution.powers_of_two();
        reply.map(pairs.len());
        for (us, calls) in pairs {
            reply.integer(us as i64);
            reply.integer(calls as i64);
        }
    }
    Ok(())
}

/// A container stands for its subcommands.
fn asked_for(cx: &ServerCx<'_>) -> Vec<&'static Entry> {
    let table = &cx.shared.table;
    let names = cx.args.from(2);
    if names.is_empty() {
        return table.entries().iter().collect();
    }
    let found = names.iter().filter_map(|name| table.find_full(name));
    found
        .flat_map(|entry| {
            let subcommands = entry.subcommands.iter().map(|index| &table.entries()[*index]);
            std::iter::once(entry).chain(subcommands)
        })
        .collect()
}

static LATENCY_DOCTOR: ServerCommand = ServerCommand {
    spec: Spec {
        name: "doctor",
        summary: "Says what was slow, and what to do about it.",
        ..LOOKING
    },
    run: ServerRun::Plain(|cx| {
        let text = diagnosis(&cx.shared.latencies.all(), &cx.core.config);
        cx.reply().verbatim(b"txt", text.as_bytes());
        Ok(())
    }),
};

fn diagnosis(events: &[(&'static str, Series)], config: &Config) -> String {
    if config.latency.monitor_threshold == 0 && events.is_empty() {
        return "Latencies are not watched. CONFIG SET latency-monitor-threshold <milliseconds> \
                begins to.\n"
            .into();
    }
    if events.is_empty() {
        return "Nothing took as long as latency-monitor-threshold. There is nothing to mend.\n"
            .into();
    }
    let mut text = String::from("These took longer than they should:\n\n");
    for (number, (event, series)) in events.iter().enumerate() {
        text += &format!("{}. {event}: {}\n", number + 1, summary(series));
    }
    text += "\nWhat may help:\n\n";
    advice(events, config).iter().for_each(|line| text += &format!("- {line}\n"));
    text
}

/// One line about an event: how often, how long, how far apart.
fn summary(series: &Series) -> String {
    let count = series.samples.len() as u64;
    let sum: u64 = series.samples.iter().map(|sample| sample.latency_ms).sum();
    let mean = sum / count.max(1);
    let deviation: u64 = series.samples.iter().map(|sample| sample.latency_ms.abs_diff(mean)).sum();
    let ends = series.samples.front().zip(series.samples.back());
    let span_s = ends.map_or(0, |(first, last)| last.time_s - first.time_s);
    format!(
        "{count} samples, {mean} ms on average (mean deviation {} ms), one in {:.2} s, the worst \
         ever {} ms.",
        deviation / count.max(1),
        span_s as f64 / count.max(1) as f64,
        series.latency_ms_max
    )
}

fn advice(events: &[(&'static str, Series)], config: &Config) -> Vec<String> {
    let has = |names: &[&str]| events.iter().any(|(event, _)| names.contains(event));
    let mut lines = Vec::new();
    if has(&["command", "fast-command"]) {
        let threshold_us = config.latency.monitor_threshold.saturating_mul(1000);
        let slow_us = u64::try_from(config.commandlog.execution_slower_than);
        if slow_us.is_err() || slow_us.is_ok_and(|slow_us| slow_us > threshold_us) {
            lines.push(format!(
                "The slow log would name the calls, but looks only at longer ones: CONFIG SET \
                 slowlog-log-slower-than {threshold_us}."
            ));
        } else {
            lines.push("The slow log names the calls: SLOWLOG GET.".into());
        }
        lines.push(
            "A call takes long if it visits many elements: page through large values with the \
             SCAN commands, and split values of millions of elements."
                .into(),
        );
    }
    if has(&["fast-command"]) {
        lines.push(
            "Commands that do little were slow: the machine stopped the process, or swaps. Look \
             at its load, and give the server cores of its own."
                .into(),
        );
    }
    if has(&["expire-cycle"]) {
        lines
            .push("Many keys expire at the same time. Spread their times to live a little.".into());
    }
    if lines.is_empty() {
        lines.push("LATENCY GRAPH shows how an event went on over time.".into());
    }
    lines
}

static LATENCY_HELP: ServerCommand = ServerCommand {
    spec: help_spec(SINCE, Group::Server),
    run: ServerRun::Plain(|cx| {
        write_help(&mut cx.connection.reply, "LATENCY", HELP);
        Ok(())
    }),
};

static HELP: &[&str] = &[
    "DOCTOR",
    "    What was slow, and what may help.",
    "GRAPH <event>",
    "    The samples of an event as a picture.",
    "HISTOGRAM [<command> ...]",
    "    How the latencies of these commands, or of all, are distributed.",
    "HISTORY <event>",
    "    The samples of an event: second and milliseconds.",
    "LATEST",
    "    The last sample of each event, the longest, their sum and their count.",
    "RESET [<event> ...]",
    "    Forgets the samples of these events, or of all.",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::latency::Latencies;

    #[test]
    fn the_doctor_names_events_and_what_helps() {
        let latencies = Latencies::default();
        let config = Config::of_table();
        assert!(diagnosis(&latencies.all(), &config).contains("not watched"));
        let config = Config {
            latency: kvasir_config::Latency { monitor_threshold: 5, ..config.latency },
            ..config
        };
        assert!(diagnosis(&latencies.all(), &config).contains("nothing to mend"));
        latencies.add("command", 10, 20);
        latencies.add("command", 14, 40);
        let text = diagnosis(&latencies.all(), &config);
        let line = "1. command: 2 samples, 30 ms on average (mean deviation 10 ms), one in 2.00 s, \
                    the worst ever 40 ms.\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("slowlog-log-slower-than 5000"), "{text}");
    }
}
