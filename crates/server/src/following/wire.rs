//! The socket that the primary is connected by, with TLS or without.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use kvasir_config::Config;
use kvasir_structures::locks::lock;

use crate::following::host::Wire;
use crate::following::link::ACKNOWLEDGE;
use crate::net::tls::client::{self, TlsStream};
use crate::store::replication::upstream::CutOff;

pub struct Socket {
    socket: TcpStream,
    session: Option<Box<Mutex<TlsStream>>>,
}

impl Socket {
    /// Over a socket whose reads and writes end in time.
    pub fn over(
        socket: TcpStream,
        config: &Config,
        patience: Duration,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Socket, String> {
        if !config.tls.replication {
            return Ok(Socket { socket, session: None });
        }
        let start = Instant::now();
        let inner = socket.try_clone().map_err(|error| error.to_string())?;
        let mut stream = client::begin(&config.tls, inner)?;
        loop {
            match client::shake_hands(&mut stream) {
                Ok(()) => {
                    return Ok(Socket { socket, session: Some(Box::new(Mutex::new(stream))) });
                }
                Err(error) if is_pause(error.kind()) => {
                    if start.elapsed() > patience || !is_wanted() {
                        return Err("it does not answer in TLS".into());
                    }
                }
                Err(error) => return Err(format!("TLS: {error}")),
            }
        }
    }
}

impl Wire for Socket {
    fn addresses(&self) -> io::Result<(String, String)> {
        Ok((self.socket.peer_addr()?.to_string(), self.socket.local_addr()?.to_string()))
    }

    fn cut_off(&self) -> io::Result<CutOff> {
        let socket = self.socket.try_clone()?;
        // Whoever reads from it finds the end.
        Ok(Box::new(move || drop(socket.shutdown(Shutdown::Both))))
    }

    async fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &self.session else { return self.socket.read(bytes) };
        match lock(session).read(bytes) {
            // Many servers do not say goodbye.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
            read => read,
        }
    }

    /// Also beside another thread that writes.
    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let Some(session) = &self.session else { return (&self.socket).write_all(bytes) };
        let mut stream = lock(session);
        stream.write_all(bytes)?;
        stream.flush()
    }

    async fn rest(&mut self, time: Duration) {
        thread::sleep(time);
    }

    fn alive_during<R>(&self, work: impl FnOnce() -> R) -> R {
        let (is_over, over) = mpsc::channel::<()>();
        thread::scope(|scope| {
            // Without the thread the primary may lose patience, and that is all.
            let tell = move || {
                while over.recv_timeout(ACKNOWLEDGE) == Err(RecvTimeoutError::Timeout) {
                    if self.write_all(b"\n").is_err() {
                        return;
                    }
                }
            };
            let _ = thread::Builder::new().spawn_scoped(scope, tell);
            let result = work();
            drop(is_over);
            result
        })
    }
}

pub fn is_pause(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
