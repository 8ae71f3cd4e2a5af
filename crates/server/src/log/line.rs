//! A line of the log, in each of its formats.
//!
//! ```text
//! legacy  4242:M 21 Nov 2026 11:50:54.400 * listening port=6379
//! logfmt  pid=4242 role=primary timestamp="21 Nov 2026 11:50:54.400" level=notice message="..."
//! json    {"pid":4242,"role":"primary","timestamp":"21 Nov 2026 11:50:54.400",...}
//! ```

use std::fmt::Write;

use jiff::Zoned;
use kvasir_config::{LogFormat, Loglevel, TimestampFormat};

/// The looks of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub format: LogFormat,
    pub timestamp: TimestampFormat,
}

/// The line for a message, with its end. Control characters are escaped: a message may quote what
/// a client sent.
pub fn line(look: Look, severity: Loglevel, now: &Zoned, message: &str) -> String {
    let (pid, time, level) = (std::process::id(), timestamp(look.timestamp, now), name(severity));
    match look.format {
        LogFormat::Legacy => {
            format!("{pid}:M {time} {} {}\n", sign(severity), escaped(message, ""))
        }
        LogFormat::Logfmt => format!(
            "pid={pid} role=primary timestamp=\"{time}\" level={level} message=\"{}\"\n",
            escaped(message, "\"\\")
        ),
        LogFormat::Json => {
            let mut line = format!(
                "{{\"pid\":{pid},\"role\":\"primary\",\"timestamp\":\"{time}\",\
                 \"level\":\"{level}\",\"message\":\""
            );
            escape_json(&mut line, message);
            line + "\"}\n"
        }
    }
}

fn timestamp(format: TimestampFormat, now: &Zoned) -> String {
    match format {
        TimestampFormat::Legacy => now.strftime("%d %b %Y %H:%M:%S.%3f").to_string(),
        TimestampFormat::Iso8601 => now.strftime("%Y-%m-%dT%H:%M:%S.%3f%:z").to_string(),
        TimestampFormat::Milliseconds => now.timestamp().as_millisecond().to_string(),
    }
}

/// A text as one line; the characters of `special` get a backslash.
pub fn escaped(text: &str, special: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() {
            line.extend(char.escape_default());
        } else {
            if special.contains(char) {
                line.push('\\');
            }
            line.push(char);
        }
    }
    line
}

fn escape_json(line: &mut String, text: &str) {
    for char in text.chars() {
        match char {
            '"' | '\\' => line.extend(['\\', char]),
            '\n' => *line += "\\n",
            '\r' => *line += "\\r",
            '\t' => *line += "\\t",
            char if char.is_control() => {
                let _ = write!(line, "\\u{:04x}", char as u32);
            }
            char => line.push(char),
        }
    }
}

fn name(severity: Loglevel) -> &'static str {
    match severity {
        Loglevel::Debug => "debug",
        Loglevel::Verbose => "verbose",
        Loglevel::Notice => "notice",
        Loglevel::Warning | Loglevel::Nothing => "warning",
    }
}

fn sign(severity: Loglevel) -> char {
    match severity {
        Loglevel::Debug => '.',
        Loglevel::Verbose => '-',
        Loglevel::Notice => '*',
        Loglevel::Warning | Loglevel::Nothing => '#',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: LogFormat, severity: Loglevel, message: &str, expect: &str) {
        let time: Zoned = "2026-11-05T07:08:09.0104[UTC]".parse().unwrap();
        let look = Look { format, timestamp: TimestampFormat::Legacy };
        let expect = expect.replace("PID", &std::process::id().to_string());
        assert_eq!(line(look, severity, &time, message), expect + "\n");
    }

    #[test]
    fn lines_look_as_in_redis() {
        let check = |severity, message, expect: &str| {
            let expect = format!("PID:M 05 Nov 2026 07:08:09.010 {expect}");
            check(LogFormat::Legacy, severity, message, &expect);
        };
        check(Loglevel::Debug, "a b=1", ". a b=1");
        check(Loglevel::Verbose, "a", "- a");
        check(Loglevel::Notice, "ä", "* ä");
        check(Loglevel::Warning, "a\nb\x1b", "# a\\nb\\u{1b}");
    }

    #[test]
    fn lines_for_programs_are_those_of_valkey() {
        let time = "05 Nov 2026 07:08:09.010";
        check(
            LogFormat::Logfmt,
            Loglevel::Warning,
            "a \"b\" \\ \n",
            &format!(
                "pid=PID role=primary timestamp=\"{time}\" level=warning \
                 message=\"a \\\"b\\\" \\\\ \\n\""
            ),
        );
        check(
            LogFormat::Json,
            Loglevel::Notice,
            "a \"b\" \\ \n\x1b",
            &format!(
                "{{\"pid\":PID,\"role\":\"primary\",\"timestamp\":\"{time}\",\
                 \"level\":\"notice\",\"message\":\"a \\\"b\\\" \\\\ \\n\\u001b\"}}"
            ),
        );
    }

    #[test]
    fn times() {
        let now: Zoned = "2026-11-05T07:08:09.0104+01:00[Europe/Paris]".parse().unwrap();
        assert_eq!(timestamp(TimestampFormat::Iso8601, &now), "2026-11-05T07:08:09.010+01:00");
        assert_eq!(timestamp(TimestampFormat::Milliseconds, &now), "1793858889010");
    }
}
