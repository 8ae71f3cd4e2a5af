//! One request, from bytes. `httparse` reads the head; here is what is made of it, and how much of
//! anything there may be.

use httparse::Status;
use kvasir_memcached::base64::decode;

/// Bytes of a head. A browser's has some 2 KiB, of which cookies of others are the most.
pub const HEAD_MAX: usize = 16 << 10;
/// Fields of a head.
const FIELDS_MAX: usize = 64;
/// Bytes of a body: a command of the console.
pub const BODY_MAX: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    Get,
    /// As `Get`, but only the head is answered.
    Head,
    Post,
    Other,
}

#[derive(Debug)]
pub struct Request {
    pub method: Method,
    /// Without what is behind a `?`.
    pub path: String,
    /// By names in lower case.
    fields: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    /// More requests may follow.
    pub is_kept: bool,
}

/// Why a request is refused before anybody looks what it wants: status and reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub u16);

impl Request {
    /// The first request of these bytes and its length; none while it is not whole.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, Malformed> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut head = httparse::Request::new(&mut fields);
        let head_len = match head.parse(&bytes[..bytes.len().min(HEAD_MAX)]) {
            Ok(Status::Complete(len)) => len,
            Ok(Status::Partial) if bytes.len() < HEAD_MAX => return Ok(None),
            Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Err(Malformed(431));
            }
            Err(_) => return Err(Malformed(400)),
        };
        let target = head.path.unwrap_or("/");
        let mut request = Request {
            method: match head.method {
                Some("GET") => Method::Get,
                Some("HEAD") => Method::Head,
                Some("POST") => Method::Post,
                _ => Method::Other,
            },
            path: target.split('?').next().unwrap_or_default().to_owned(),
            is_kept: head.version == Some(1),
            fields: Vec::new(),
            body: Vec::new(),
        };
        let fields = head.headers.iter();
        request.fields =
            fields.map(|field| (field.name.to_ascii_lowercase(), field.value.to_vec())).collect();
        if request.has_token("connection", "close") {
            request.is_kept = false;
        }
        let end = head_len + request.body_len()?;
        if bytes.len() < end {
            return Ok(None);
        }
        request.body = bytes[head_len..end].to_vec();
        Ok(Some((request, end)))
    }

    /// Two lengths, or one in another form, are how requests are smuggled in behind others.
    fn body_len(&self) -> Result<usize, Malformed> {
        if self.field("transfer-encoding").is_some() {
            return Err(Malformed(411));
        }
        let mut lengths = self.fields.iter().filter(|(name, _)| name == "content-length");
        let Some((_, length)) = lengths.next() else { return Ok(0) };
        let is_number = !length.is_empty() && length.iter().all(u8::is_ascii_digit);
        if lengths.next().is_some() || !is_number {
            return Err(Malformed(400));
        }
        let length = std::str::from_utf8(length).ok().and_then(|text| text.parse().ok());
        length.filter(|length| *length <= BODY_MAX).ok_or(Malformed(413))
    }

    /// The first field of this name.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..])
    }

    /// As `field`, if it is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.field(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    fn has_token(&self, name: &str, token: &str) -> bool {
        let tokens = self.text(name).unwrap_or_default().split(',');
        tokens.map(str::trim).any(|word| word.eq_ignore_ascii_case(token))
    }

    /// Name and password of basic authentication.
    pub fn credentials(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let (scheme, word) = self.text("authorization")?.trim().split_once(' ')?;
        // Some clients leave the padding out.
        let digits = word.trim().trim_end_matches('=');
        let text = format!("{digits:=<width$}", width = digits.len().next_multiple_of(4));
        let mut bytes = Vec::new();
        if !scheme.eq_ignore_ascii_case("basic") || !decode(text.as_bytes(), &mut bytes) {
            return None;
        }
        let colon = bytes.iter().position(|byte| *byte == b':')?;
        Some((bytes[..colon].to_vec(), bytes[colon + 1..].to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<(Request, usize)>, Malformed> {
        Request::parse(text.as_bytes())
    }

    #[test]
    fn requests_are_read_one_by_one() {
        let text = "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\nHEAD / HTTP/1.0\r\n\r\n";
        let (first, len) = parse(text).unwrap().unwrap();
        assert_eq!((first.method, &first.path[..], first.is_kept), (Method::Get, "/metrics", true));
        let (second, _) = parse(&text[len..]).unwrap().unwrap();
        assert_eq!((second.method, second.is_kept), (Method::Head, false));
        let post =
            "POST /api HTTP/1.1\r\nConnection: Keep-Alive, Close\r\nContent-Length: 2\r\n\r\nab";
        for end in 0..post.len() {
            assert!(parse(&post[..end]).unwrap().is_none(), "{end}");
        }
        let (request, len) = parse(&format!("{post}more")).unwrap().unwrap();
        assert_eq!((&request.body[..], len, request.is_kept), (&b"ab"[..], post.len(), false));
    }

    #[test]
    fn what_is_too_much_or_means_two_things_is_refused() {
        let many: String = (0..100).map(|number| format!("A{number}: b\r\n")).collect();
        for (text, status) in [
            ("GARBAGE\x01\r\n\r\n".to_owned(), 400),
            ("GET / HTTP/3.0\r\n\r\n".to_owned(), 400),
            (format!("GET / HTTP/1.1\r\n{many}\r\n"), 431),
            (format!("GET / HTTP/1.1\r\nA: {}", "b".repeat(HEAD_MAX)), 431),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), 411),
            ("POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n".to_owned(), 400),
            ("POST / HTTP/1.1\r\nContent-Length:\r\n\r\n".to_owned(), 400),
            ("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n".to_owned(), 413),
            (format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", BODY_MAX + 1), 413),
            ("A / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n".to_owned(), 400),
        ] {
            assert_eq!(parse(&text).err(), Some(Malformed(status)), "{text:?}");
        }
    }

    #[test]
    fn credentials_of_basic_authentication() {
        let of = |value: &str| {
            let text = format!("GET / HTTP/1.1\r\nAuthorization: {value}\r\n\r\n");
            parse(&text).unwrap().unwrap().0.credentials()
        };
        let is = |name: &str, password: &str| {
            Some((name.as_bytes().to_vec(), password.as_bytes().to_vec()))
        };
        assert_eq!(of("Basic cHJvbTpzOmU="), is("prom", "s:e"));
        assert_eq!(of("basic  Og"), is("", ""));
        for value in
            ["Basic", "Basic !", "Basic cHJvbQ==", "Bearer cHJvbTpz", "Basic Og=x", "Basic O"]
        {
            assert_eq!(of(value), None, "{value}");
        }
    }
}
