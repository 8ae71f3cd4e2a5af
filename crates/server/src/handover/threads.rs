//! Hands that are threads: each work has one of its own, which blocks where the work waits.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use kvasir_config::Config;
use kvasir_reactor::thread as reactor_thread;

use crate::cluster::hands::{Chunk, Chunks, Hands, Later, Wire, Work, Workforce};
use crate::following::thread::block_on;
use crate::following::wire::is_pause;
use crate::net::tls::client::{self, TlsStream};

/// How long a call of the system may keep from looking whether the job goes on.
const LOOK: Duration = Duration::from_millis(50);

pub struct Threads;

impl Workforce for Threads {
    fn begin(&self, name: &'static str, work: Work) -> io::Result<()> {
        let run = move || {
            let _ = reactor_thread::wake_late().and_then(|()| reactor_thread::work_less());
            block_on(work(Box::new(Blocking)));
        };
        thread::Builder::new().name(name.into()).spawn(run)?;
        Ok(())
    }
}

struct Blocking;

impl Hands for Blocking {
    fn rest(&mut self, time: Duration) -> Later<'_, ()> {
        Box::pin(async move { thread::sleep(time) })
    }

    fn connect<'a>(
        &'a mut self,
        host: &'a str,
        port: u16,
        config: &'a Config,
        patience: Duration,
    ) -> Later<'a, Result<Box<dyn Wire>, String>> {
        Box::pin(async move { connect(host, port, config, patience) })
    }

    fn take<'a>(&'a mut self, chunks: &'a Arc<Chunks>) -> Later<'a, Option<Chunk>> {
        Box::pin(async { chunks.take() })
    }
}

/// With TLS or without.
struct Stream<S>(S);

impl<S: Read + Write> Wire for Stream<S> {
    fn read<'a>(&'a mut self, bytes: &'a mut [u8]) -> Later<'a, io::Result<usize>> {
        Box::pin(async { self.0.read(bytes) })
    }

    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Later<'a, io::Result<usize>> {
        Box::pin(async { self.0.write(bytes) })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn connect(
    host: &str,
    port: u16,
    config: &Config,
    patience: Duration,
) -> Result<Box<dyn Wire>, String> {
    let text = |error: io::Error| error.to_string();
    let addresses = (host, port).to_socket_addrs().map_err(text)?;
    let mut failure = "its name has no address".to_owned();
    let mut stream = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(open) => {
                stream = Some(open);
                break;
            }
            Err(error) => failure = error.to_string(),
        }
    }
    let stream = stream.ok_or(failure)?;
    stream.set_nodelay(true).map_err(text)?;
    stream.set_read_timeout(Some(LOOK)).map_err(text)?;
    stream.set_write_timeout(Some(LOOK)).map_err(text)?;
    match config.tls.cluster {
        true => Ok(Box::new(Stream(over_tls(config, stream, patience)?))),
        false => Ok(Box::new(Stream(stream))),
    }
}

fn over_tls(config: &Config, stream: TcpStream, patience: Duration) -> Result<TlsStream, String> {
    let (mut stream, start) = (client::begin(&config.tls, stream)?, Instant::now());
    loop {
        match client::shake_hands(&mut stream) {
            Ok(()) => return Ok(stream),
            Err(error) if is_pause(error.kind()) && start.elapsed() < patience => {}
            Err(error) => return Err(format!("TLS: {error}")),
        }
    }
}
