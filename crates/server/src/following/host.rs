//! What a follower is driven by: how it waits, and what it is connected by.
//!
//! All that it does stands once, as functions that may wait (`async`). The thread `replica` blocks
//! where they wait (`thread.rs`); a simulated world goes on with something else meanwhile.

use std::future::Future;
use std::io;
use std::time::Duration;

use crate::state::shared::Shared;
use crate::store::replication::upstream::{CutOff, Primary, Upstream};

pub trait Host {
    type Wire: Wire;

    /// Returns once there is a server to follow; with the version of that wish.
    fn wait(&mut self, upstream: &Upstream) -> impl Future<Output = (Primary, u64)>;

    /// Rests, unless another server is to be followed.
    fn rest(
        &mut self,
        upstream: &Upstream,
        version: u64,
        time: Duration,
    ) -> impl Future<Output = ()>;

    /// # Errors
    ///
    /// For a person to read.
    fn connect(
        &mut self,
        shared: &'static Shared,
        primary: &Primary,
        version: u64,
    ) -> impl Future<Output = Result<Self::Wire, String>>;
}

/// Bytes to the primary and from it.
pub trait Wire {
    /// The addresses of the primary and of this side.
    fn addresses(&self) -> io::Result<(String, String)>;

    /// What ends it, for others to use.
    fn cut_off(&self) -> io::Result<CutOff>;

    /// Reads what has come; 0 bytes: nothing comes any more. Does not wait for long
    /// (`wire::is_pause`).
    fn read(&mut self, bytes: &mut [u8]) -> impl Future<Output = io::Result<usize>>;

    /// What is said is short: who does not take that takes nothing.
    fn write_all(&self, bytes: &[u8]) -> io::Result<()>;

    fn rest(&mut self, time: Duration) -> impl Future<Output = ()>;

    /// Does something that takes long, and has the primary hear meanwhile that the link is alive.
    fn alive_during<R>(&self, work: impl FnOnce() -> R) -> R;
}
