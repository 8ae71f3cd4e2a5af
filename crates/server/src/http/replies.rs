//! What the server answers to the calls of one request: its bytes, up to a bound. What a reply has
//! beyond it is passed without being kept, and an error stands in the reply's place.

use kvasir_resp::decode::DecodeError;
use kvasir_resp::ends::Ends;

/// Bytes of the replies to one request, but for the errors in place of those that are too long.
const REPLIES_MAX: usize = 16 << 20;

pub struct Replies {
    /// Of the calls, in order.
    names: Vec<&'static str>,
    /// How many of them are answered.
    answered: usize,
    bytes: Vec<u8>,
    /// How many of these are replies that fit; the others are the errors in place of some.
    kept: usize,
    /// Where in `bytes` the reply begins that is on its way.
    start: usize,
    /// How long it is so far.
    len: usize,
    ends: Ends,
}

impl Replies {
    pub fn new(names: Vec<&'static str>) -> Replies {
        let ends = Ends::default();
        Replies { names, answered: 0, bytes: Vec::new(), kept: 0, start: 0, len: 0, ends }
    }

    /// Takes what has come; whether these are all replies now.
    pub fn receive(&mut self, mut bytes: &[u8]) -> Result<bool, DecodeError> {
        while !bytes.is_empty() && self.answered < self.names.len() {
            let end = self.ends.next_end(bytes)?;
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            self.len = self.len.saturating_add(part.len());
            if self.is_too_long() {
                self.bytes.truncate(self.start);
            } else {
                self.bytes.extend_from_slice(part);
            }
            if end.is_some() {
                self.close();
            }
            bytes = rest;
        }
        Ok(self.answered == self.names.len())
    }

    fn is_too_long(&self) -> bool {
        self.kept.saturating_add(self.len) > REPLIES_MAX
    }

    fn close(&mut self) {
        let name = self.names[self.answered];
        self.answered += 1;
        if self.is_too_long() {
            let text = format!(
                "-TOOLONG '{name}', call {} of {}, is answered with {} bytes, and all replies to \
                 a request may have {REPLIES_MAX}: {}\r\n",
                self.answered,
                self.names.len(),
                self.len,
                part_of(name)
            );
            self.bytes.extend_from_slice(text.as_bytes());
        } else {
            self.kept += self.len;
        }
        (self.start, self.len) = (self.bytes.len(), 0);
    }

    /// Whether the first reply is an error.
    pub fn is_error(&self) -> bool {
        matches!(self.bytes.first(), Some(b'-' | b'!'))
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// How to ask for less.
fn part_of(name: &str) -> &'static str {
    match name {
        "get" | "getex" | "getdel" | "getset" | "mget" | "dump" => {
            "ask for a part of it by GETRANGE key start end"
        }
        "hgetall" | "hkeys" | "hvals" | "hmget" => "ask page by page by HSCAN key cursor COUNT n",
        "smembers" | "sunion" | "sinter" | "sdiff" => {
            "ask page by page by SSCAN key cursor COUNT n"
        }
        "zrange" | "zrevrange" | "zunion" | "zinter" | "zdiff" => {
            "ask for fewer ranks by ZRANGE key start stop"
        }
        "lrange" => "ask for fewer elements by LRANGE key start stop",
        "keys" => "ask page by page by SCAN cursor MATCH pattern COUNT n",
        "client|list" => "ask for some clients by CLIENT LIST ID id",
        _ => "ask for a part of it, by a range or with COUNT or LIMIT, as the command has it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(len: usize) -> Vec<u8> {
        format!("${len}\r\n{}\r\n", "x".repeat(len)).into_bytes()
    }

    #[test]
    fn a_reply_that_is_too_long_is_told_in_its_place() {
        let mut replies = Replies::new(vec!["ping", "get", "lrange", "ping"]);
        let long = string(REPLIES_MAX);
        let list = [b"*2\r\n".to_vec(), string(REPLIES_MAX / 2), string(REPLIES_MAX / 2)].concat();
        let all = [b"+A\r\n", &long[..], &list[..], b"+B\r\n"].concat();
        let (last, first) = all.split_last().expect("there are some");
        for part in first.chunks(100_000) {
            assert_eq!(replies.receive(part), Ok(false));
            assert!(replies.bytes.len() <= REPLIES_MAX + 1000);
        }
        assert_eq!(replies.receive(&[*last]), Ok(true));
        let text = String::from_utf8(replies.into_bytes()).expect("text");
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!((lines.len(), lines[0], lines[3]), (5, "+A", "+B"));
        let head = format!("-TOOLONG 'get', call 2 of 4, is answered with {} bytes", long.len());
        assert!(lines[1].starts_with(&head) && lines[1].contains("GETRANGE"), "{}", lines[1]);
        assert!(lines[2].contains(&format!("call 3 of 4, is answered with {} b", list.len())));
    }

    #[test]
    fn what_just_fits_is_kept() {
        let reply = string(REPLIES_MAX - 100);
        let mut replies = Replies::new(vec!["get", "get", "ping"]);
        assert_eq!(replies.receive(&reply), Ok(false));
        assert_eq!(replies.receive(&string(100)), Ok(false));
        assert_eq!(replies.receive(b"+OK\r\n"), Ok(true));
        assert!(!replies.is_error());
        let bytes = replies.into_bytes();
        assert_eq!(bytes[..reply.len()], reply);
        assert!(bytes[reply.len()..].starts_with(b"-TOOLONG 'get', call 2 of 3"));
        assert!(bytes.ends_with(b"\r\n+OK\r\n"));
    }
}
