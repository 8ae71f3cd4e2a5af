//! Who looks into a server once a second, over HTTP: a scraper, and the console's page.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use kvasir_resp::decode::decode;
use kvasir_resp::encode::encode_request;

/// As `setInterval` of the page and `scrape_interval` have it.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// How often it is seen that nobody need look any more.
const STEP: Duration = Duration::from_millis(20);
/// An answer that takes longer does not come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Looks at once and then again and again while there is work to do; how often that was.
pub fn look_while<T>(
    interval: Duration,
    mut look: impl FnMut() -> Result<()> + Send,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, u32)> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let (mut count, mut next) = (0, Instant::now());
            while !is_over.load(Ordering::Relaxed) {
                if Instant::now() >= next {
                    look()?;
                    count += 1;
                    next += interval;
                }
                thread::sleep(STEP);
            }
            Ok::<u32, anyhow::Error>(count)
        });
        let worked = work();
        is_over.store(true, Ordering::Relaxed);
        let looked = looker.join().map_err(|_| anyhow!("the thread that looks panicked"))?;
        Ok((worked?, looked?))
    })
}

/// A connection to `metrics-port`.
pub struct Http(TcpStream);

impl Http {
    pub fn connect(port: u16) -> Result<Http> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Http(stream))
    }

    /// All figures, as Prometheus asks for them.
    pub fn scrape(&mut self) -> Result<()> {
        let page = self.ask("GET /metrics", "Accept: text/plain\r\n", b"")?;
        ensure!(page.body.starts_with(b"# "), "this is no page of figures");
        Ok(())
    }

    /// Fields of the head have their line ends.
    fn ask(&mut self, what: &str, fields: &str, body: &[u8]) -> Result<Page> {
        let head = format!(
            "{what} HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: {}\r\n\r\n",
            body.len()
        );
        self.0.write_all(&[head.as_bytes(), body].concat())?;
        self.read().with_context(|| format!("no answer to {what}"))
    }

    fn read(&mut self) -> Result<Page> {
        let (mut bytes, mut chunk) = (Vec::new(), [0; 64 * 1024]);
        let mut receive = |bytes: &mut Vec<u8>| -> Result<()> {
            let len = self.0.read(&mut chunk)?;
            ensure!(len > 0, "the connection ended");
            bytes.extend_from_slice(&chunk[..len]);
            Ok(())
        };
        let end = loop {
            match bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(end) => break end,
                None => receive(&mut bytes)?,
            }
        };
        let head = String::from_utf8(bytes[..end].to_vec())?;
        ensure!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let page = Page { head, body: Vec::new() };
        let length: usize = page.field("Content-Length")?.parse()?;
        while bytes.len() < end + 4 + length {
            receive(&mut bytes)?;
        }
        Ok(Page { body: bytes.split_off(end + 4), ..page })
    }
}

struct Page {
    head: String,
    body: Vec<u8>,
}

impl Page {
    fn field(&self, name: &str) -> Result<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = fields.find(|(known, _)| *known == name);
        found.map(|(_, value)| value).with_context(|| format!("no field {name} in {}", self.head))
    }
}

/// A session of the console whose page shows what goes on.
pub struct Console {
    http: Http,
    /// Whose session it is, as fields of a request.
    fields: String,
}

impl Console {
    pub fn log_in(port: u16) -> Result<Console> {
        let mut http = Http::connect(port)?;
        let page = http.ask("POST /api/login", "", &encode_request(&["LOGIN", "default", ""]))?;
        let session = decode(&page.body)?;
        let words = session.as_array().context("a session is a list")?;
        let token = words.first().and_then(|token| token.as_bytes()).context("no token")?;
        let token = String::from_utf8(token.to_vec())?;
        let cookie = page.field("Set-Cookie")?.split(';').next().unwrap_or_default().to_owned();
        Ok(Console { http, fields: format!("Cookie: {cookie}\r\nX-Kvasir-Token: {token}\r\n") })
    }

    /// What the first of its views asks for, `console/src/live.tsx`.
    pub fn look(&mut self) -> Result<()> {
        let call = encode_request(&["INFO", "default", "latencystats"]);
        let page = self.http.ask("POST /api/command", &self.fields, &call)?;
        if !page.body.starts_with(b"=") {
            bail!("INFO was answered with {}", page.body.escape_ascii());
        }
        Ok(())
    }
}
