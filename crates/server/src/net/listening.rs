//! Where the server listens for TCP, and how that changes while it runs.
//!
//! The sockets belong to the reactor of worker 0. Here is a hold on each, by which whoever changes
//! `bind` or a port ends it on the spot, without waiting for that worker; the worker then forgets
//! the old ones and accepts at the new ones. New sockets are opened first. Where one can't be had
//! because an old one is in its way, as `127.0.0.1` is in that of `*`, the old ones fall silent
//! before; if the change fails after all, they listen again.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};

use kvasir_config::Config;
use kvasir_reactor::{Listener, ListenerHold};
use kvasir_structures::locks::lock;

use crate::log::{notice, warning};
use crate::net::listen::{ListenerKind, Open, Place, backlog, is_unavailable, places};

/// All TCP sockets that the server listens at.
#[derive(Default)]
pub struct Listeners(Mutex<State>);

#[derive(Default)]
struct State {
    kept: Vec<Kept>,
    last_number: u64,
}

struct Kept {
    place: Place,
    hold: ListenerHold,
    number: u64,
}

/// What worker 0 has to do: accept at some, forget others.
pub struct Change {
    pub opened: Vec<Open>,
    pub closed: Vec<u64>,
}

/// A change that can still be taken back, which happens when it is dropped.
pub struct Turn<'a> {
    state: MutexGuard<'a, State>,
    opened: Vec<(Place, Listener)>,
    /// Of `kept`, those that are wanted no more, by their numbers.
    closed: Vec<u64>,
    are_silent: bool,
    backlog: i32,
}

impl Listeners {
    /// Keeps a hold on a new socket.
    pub fn keep(&self, place: Place, listener: Listener) -> Result<Open, String> {
        lock(&self.0).keep(place, listener).map_err(|error| error.to_string())
    }

    /// Keeps what was opened before there were all to share it.
    pub fn take_over(&self, others: Listeners) {
        *lock(&self.0) = std::mem::take(&mut *lock(&others.0));
    }

    /// Where clients of memcached connect.
    pub fn of_memcached(&self) -> Vec<SocketAddr> {
        let state = lock(&self.0);
        let places = state.kept.iter().map(|kept| kept.place);
        places.filter(|place| place.kind.is_memcached()).map(|place| place.address).collect()
    }

    /// Opens what another configuration wants and this one has not. The error names the option.
    pub fn turn_to(&self, before: &Config, after: &Config) -> Result<Turn<'_>, Refused> {
        let mut turn = Turn {
            state: lock(&self.0),
            opened: Vec::new(),
            closed: Vec::new(),
            are_silent: false,
            backlog: backlog(after),
        };
        let is_same = before.bind == after.bind
            && before.port == after.port
            && before.tls.port == after.tls.port;
        if is_same {
            return Ok(turn);
        }
        let wanted = places(after).map_err(|error| {
            warning!("{error}");
            refused(before, after, None)
        })?;
        turn.open(wanted).map_err(|kind| refused(before, after, Some(kind)))?;
        Ok(turn)
    }
}

/// The option that a change fails for, and why.
pub type Refused = (&'static str, &'static str);

/// Words of Redis. Of several options that change it is the one that is tried last there.
fn refused(before: &Config, after: &Config, kind: Option<ListenerKind>) -> Refused {
    let of_port = "Unable to listen on this port. Check server logs.";
    let is_tls = kind == Some(ListenerKind::TlsClient);
    match is_tls {
        true if before.tls.port != after.tls.port => ("tls-port", of_port),
        false if before.port != after.port => ("port", of_port),
        _ => ("bind", "Failed to bind to specified addresses."),
    }
}

impl State {
    fn keep(&mut self, place: Place, listener: Listener) -> io::Result<Open> {
        self.last_number += 1;
        let number = self.last_number;
        self.kept.push(Kept { place, hold: listener.hold()?, number });
        Ok(Open { listener, kind: place.kind, number })
    }
}

impl Turn<'_> {
    /// The error is the kind of the listener that could not be had.
    fn open(&mut self, wanted: Vec<Place>) -> Result<(), ListenerKind> {
        let mut left: Vec<&Kept> = self.state.kept.iter().collect();
        let is_new = |place: &Place| {
            let at = left.iter().position(|kept| kept.place.is_at(place));
            at.map(|at| left.swap_remove(at)).is_none()
        };
        let added: Vec<Place> = wanted.into_iter().filter(is_new).collect();
        self.closed = left.iter().map(|kept| kept.number).collect();
        for place in added {
            match self.listen(place) {
                Ok(listener) => self.opened.push((place, listener)),
                Err(error) if is_unavailable(&error, place.is_optional) => {
                    notice!("listening without an address reason={error}");
                }
                Err(error) => {
                    warning!("{error}");
                    return Err(place.kind);
                }
            }
        }
        Ok(())
    }

    fn listen(&mut self, place: Place) -> io::Result<Listener> {
        match Listener::tcp(place.address, self.backlog) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && !self.are_silent => {
                self.silence();
                Listener::tcp(place.address, self.backlog)
            }
            result => result,
        }
    }

    fn silence(&mut self) {
        self.are_silent = true;
        for kept in self.state.kept.iter().filter(|kept| self.closed.contains(&kept.number)) {
            if let Err(error) = kept.hold.silence() {
                warning!("a listener can't be ended address={} {error}", kept.place.address);
            }
        }
    }

    /// Puts the change in force; `None` if there is none. Fails if the system has no descriptors
    /// left.
    pub fn complete(mut self) -> io::Result<Option<Change>> {
        let known = self.state.kept.len();
        let opened = std::mem::take(&mut self.opened).into_iter();
        let opened = opened.map(|(place, listener)| self.state.keep(place, listener)).collect();
        let opened: Vec<Open> = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.state.kept.truncate(known);
                return Err(error);
            }
        };
        self.silence();
        let closed = std::mem::take(&mut self.closed);
        self.are_silent = false;
        self.state.kept.retain(|kept| !closed.contains(&kept.number));
        let is_one = !opened.is_empty() || !closed.is_empty();
        Ok(is_one.then_some(Change { opened, closed }))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.are_silent {
            return;
        }
        // Before the old ones can listen again the new ones must be gone.
        self.opened.clear();
        for kept in self.state.kept.iter().filter(|kept| self.closed.contains(&kept.number)) {
            if let Err(error) = kept.hold.listen_again(self.backlog) {
                warning!("a listener is lost address={} error={error}", kept.place.address);
            }
        }
    }
}
