//! The thread `replica`: a follower that blocks where it waits.

use std::future::Future;
use std::net::{TcpStream, ToSocketAddrs};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use std::{io, thread};

use kvasir_reactor::outgoing;

use crate::following::follow;
use crate::following::host::Host;
use crate::following::link::{LOOK, patience};
use crate::following::wire::Socket;
use crate::run::server::ServerCommands;
use crate::state::shared::Shared;
use crate::store::replication::upstream::{Primary, Upstream};

/// Starts the thread, which ends with the process.
pub fn start(shared: &'static Shared, commands: ServerCommands) -> io::Result<()> {
    let run = move || block_on(follow(shared, commands, Blocking));
    thread::Builder::new().name("replica".into()).spawn(run)?;
    Ok(())
}

/// What it waits for has come when its future is first looked at.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("it blocks where it waits"),
    }
}

struct Blocking;

impl Host for Blocking {
    type Wire = Socket;

    async fn wait(&mut self, upstream: &Upstream) -> (Primary, u64) {
        upstream.wait()
    }

    async fn rest(&mut self, upstream: &Upstream, version: u64, time: Duration) {
        upstream.rest(version, time);
    }

    async fn connect(
        &mut self,
        shared: &'static Shared,
        primary: &Primary,
        version: u64,
    ) -> Result<Socket, String> {
        let text = |error: io::Error| error.to_string();
        let addresses = (&*primary.host, primary.port).to_socket_addrs().map_err(text)?;
        let config = shared.config();
        let source = config.replication.source();
        let mut failure = "its name has no address".to_owned();
        for address in addresses {
            match outgoing::connect(&address, source, patience(shared)) {
                Ok(stream) => return over(shared, stream, version),
                Err(error) => failure = error.to_string(),
            }
        }
        Err(failure)
    }
}

fn over(shared: &'static Shared, stream: TcpStream, version: u64) -> Result<Socket, String> {
    let text = |error: io::Error| error.to_string();
    stream.set_nodelay(true).map_err(text)?;
    stream.set_read_timeout(Some(LOOK)).map_err(text)?;
    stream.set_write_timeout(Some(patience(shared))).map_err(text)?;
    let is_wanted = || shared.replication.upstream.is_current(version);
    Socket::over(stream, &shared.config(), patience(shared), is_wanted)
}
