//! One answer, to bytes.

use std::fmt::Write;

/// What any page may do: nothing, but for what the console's own page says of itself.
const POLICY: &str = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'";

pub struct Answer {
    status: u16,
    kind: &'static str,
    /// Further fields.
    fields: Vec<(&'static str, String)>,
    policy: &'static str,
    body: Vec<u8>,
}

impl Answer {
    pub fn new(status: u16, kind: &'static str, body: impl Into<Vec<u8>>) -> Answer {
        Answer { status, kind, fields: Vec::new(), policy: POLICY, body: body.into() }
    }

    pub fn text(status: u16, text: impl Into<Vec<u8>>) -> Answer {
        Answer::new(status, "text/plain; charset=utf-8", text)
    }

    /// A line that says what the status means.
    pub fn refusal(status: u16) -> Answer {
        Answer::text(status, format!("{}\n", reason(status)))
    }

    /// Lets the page do what it says.
    pub fn under(self, policy: &'static str) -> Answer {
        Answer { policy, ..self }
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        self.fields.push((name, value.into()));
        self
    }

    /// `has_body`: not what HEAD asks for.
    pub fn bytes(&self, has_body: bool, is_kept: bool) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        let connection = if is_kept { "keep-alive" } else { "close" };
        let length = self.body.len().to_string();
        let own = [
            ("Content-Type", self.kind),
            ("Content-Length", &length),
            ("Connection", connection),
            ("Cache-Control", "no-store"),
            ("Content-Security-Policy", self.policy),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
        ];
        let fields = self.fields.iter().map(|(name, value)| (*name, &value[..]));
        for (name, value) in own.into_iter().chain(fields) {
            // Nothing that is quoted can add fields.
            let value = value.replace(['\r', '\n'], " ");
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let mut bytes = (head + "\r\n").into_bytes();
        if has_body {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        411 => "Length Required",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        429 => "Too Many Requests",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_adds_no_fields() {
        let answer = Answer::text(200, "body").with("X-Quoted", "a\r\nSet-Cookie: b");
        let text = String::from_utf8(answer.bytes(true, false)).unwrap();
        assert!(text.contains("\r\nX-Quoted: a  Set-Cookie: b\r\n\r\nbody"), "{text}");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        let head = String::from_utf8(answer.bytes(false, true)).unwrap();
        assert!(head.contains("Content-Length: 4\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }
}
