//! A line of the log, in each of its formats.
//!
//! ```text
//! legacy  4242:M 21 Nov 2026 11:50:54.400 * listening port=6379
//! logfmt  pid=4242 role=primary timestamp="21 Nov 2026 11:50:54.400" level=notice message="..."
//! json    {"pid":4242,"role":"primary","timestamp":"21 Nov 2026 11:50:54.400",...}
//! ```
//!
//! Programs get the fields of a message one by one: behind the event in logfmt, as the object
//! `fields` in JSON.

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
        LogFormat::Logfmt => {
            let (event, fields) = split_fields(message);
            let mut line = format!(
                "pid={pid} role=primary timestamp=\"{time}\" level={level} message=\"{}\"",
                escaped(event, "\"\\")
            );
            for (name, value) in fields {
                let _ = match is_number(value) {
                    true => write!(line, " {name}={value}"),
                    false => write!(line, " {name}=\"{}\"", escaped(value, "\"\\")),
                };
            }
            line + "\n"
        }
        LogFormat::Json => {
            let mut line = format!(
                "{{\"pid\":{pid},\"role\":\"primary\",\"timestamp\":\"{time}\",\
                 \"level\":\"{level}\",\"message\":\""
            );
            let (event, fields) = split_fields(message);
            escape_json(&mut line, event);
            line.push('"');
            write_fields(&mut line, &fields);
            line + "}\n"
        }
    }
}

/// The object `fields`, if there are any.
fn write_fields(line: &mut String, fields: &[(&str, &str)]) {
    for (index, (name, value)) in fields.iter().enumerate() {
        *line += if index == 0 { ",\"fields\":{" } else { "," };
        let _ = write!(line, "\"{name}\":");
        if is_number(value) {
            *line += value;
        } else {
            line.push('"');
            escape_json(line, value);
            line.push('"');
        }
    }
    if !fields.is_empty() {
        line.push('}');
    }
}

/// The event of a message, and its fields: words `name=` and what stands behind each, up to the
/// next.
fn split_fields(message: &str) -> (&str, Vec<(&str, &str)>) {
    let mut rest = message;
    let mut fields = Vec::new();
    // From behind: each value ends where the field after it begins.
    while let Some((at, name, value)) = last_field(rest) {
        fields.push((name, value));
        rest = &rest[..at];
    }
    fields.reverse();
    (rest.strip_suffix(' ').unwrap_or(rest), fields)
}

/// Where the last field begins, its name, its value.
fn last_field(text: &str) -> Option<(usize, &str, &str)> {
    let is_name = |name: &str| {
        let is_part = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
        name.starts_with(|first: char| first.is_ascii_lowercase()) && name.bytes().all(is_part)
    };
    text.rmatch_indices('=').find_map(|(equals, _)| {
        let start = text[..equals].rfind(' ').map_or(0, |space| space + 1);
        let name = &text[start..equals];
        is_name(name).then(|| (start, name, text[equals + 1..].trim_end()))
    })
}

/// Whether JSON has the same number.
fn is_number(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_short = whole == "0" || !whole.starts_with('0');
    is_plain && is_short && !whole.is_empty() && !part.is_empty() && !part.contains('.')
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
    fn fields_come_one_by_one() {
        let time = "05 Nov 2026 07:08:09.010";
        let message = "DB \"saved\" file=a b.rdb keys=3 error=No (os error 2) rate=-0.5 id=007";
        check(
            LogFormat::Json,
            Loglevel::Notice,
            message,
            &format!(
                "{{\"pid\":PID,\"role\":\"primary\",\"timestamp\":\"{time}\",\
                 \"level\":\"notice\",\"message\":\"DB \\\"saved\\\"\",\"fields\":\
                 {{\"file\":\"a b.rdb\",\"keys\":3,\"error\":\"No (os error 2)\",\
                 \"rate\":-0.5,\"id\":\"007\"}}}}"
            ),
        );
        check(
            LogFormat::Logfmt,
            Loglevel::Notice,
            message,
            &format!(
                "pid=PID role=primary timestamp=\"{time}\" level=notice \
                 message=\"DB \\\"saved\\\"\" file=\"a b.rdb\" keys=3 \
                 error=\"No (os error 2)\" rate=-0.5 id=\"007\""
            ),
        );
        assert_eq!(split_fields("a=1"), ("", vec![("a", "1")]));
        for plain in ["", "no fields", "1 + 1 = 2", "A=1", "x ==", "\u{e4}="] {
            assert_eq!(split_fields(plain), (plain, vec![]), "{plain}");
        }
    }

    #[test]
    fn times() {
        let now: Zoned = "2026-11-05T07:08:09.0104+01:00[Europe/Paris]".parse().unwrap();
        assert_eq!(timestamp(TimestampFormat::Iso8601, &now), "2026-11-05T07:08:09.010+01:00");
        assert_eq!(timestamp(TimestampFormat::Milliseconds, &now), "1793858889010");
    }
}
