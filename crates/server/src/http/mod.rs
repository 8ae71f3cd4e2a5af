//! HTTP: metrics, health and the console, by one thread with a reactor of its own.
//!
//! It reads counters. What it does for a client of the console it does over a connection to the
//! server, as that user. Clients may be slow, hostile and many: there are so many connections and
//! no more, each has so long for what it does, and nobody but others like them waits for it.

mod answer;
mod calls;
mod clients;
mod console;
mod replies;
mod request;
mod routes;
mod sessions;
mod tries;

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use kvasir_config::Config;
use kvasir_reactor::{Event, Listener, Options, Reactor};

use crate::http::clients::Clients;
use crate::http::routes::Routes;
use crate::info::census;
use crate::log::warning;
use crate::net::listen;
use crate::state::shared::Shared;

/// How often it is looked for clients whose time is over, while there are any.
const LOOK: Duration = Duration::from_millis(500);

/// Opens what is listened at; nothing without `metrics-port`.
pub fn open(config: &Config) -> Result<Vec<Listener>, String> {
    let port = config.metrics.port;
    let mut listeners = Vec::new();
    if port == 0 {
        return Ok(listeners);
    }
    for (address, is_optional) in listen::addresses(&config.metrics_addresses(), port)? {
        match Listener::tcp(address, listen::backlog(config)) {
            Ok(listener) => listeners.push(listener),
            Err(error) if listen::is_unavailable(&error, is_optional) => {}
            Err(error) => {
                return Err(format!(
                    "Failed listening on port {port} (metrics), aborting. {error}"
                ));
            }
        }
    }
    Ok(listeners)
}

/// Starts the thread, which ends with the process.
pub fn start(shared: &'static Shared, listeners: Vec<Listener>) -> io::Result<()> {
    if listeners.is_empty() {
        return Ok(());
    }
    let census = census::start(shared)?;
    let run = move || {
        let routes = Routes::new(shared, census);
        let served = Reactor::new(&Options::default()).and_then(|reactor| {
            Http { shared, reactor, clients: Clients::default(), routes }.run(listeners)
        });
        if let Err(error) = served {
            warning!("metrics and the console are not served any more: {error}");
        }
    };
    std::thread::Builder::new().name("http".into()).spawn(run)?;
    Ok(())
}

struct Http {
    shared: &'static Shared,
    reactor: Reactor,
    clients: Clients,
    routes: Routes,
}

impl Http {
    fn run(mut self, listeners: Vec<Listener>) -> io::Result<()> {
        for listener in listeners {
            self.reactor.listen(listener);
        }
        let mut events = Vec::new();
        while !self.shared.is_stopping.load(Relaxed) {
            let is_alone = self.clients.is_empty() && self.routes.console.sessions.is_empty();
            let wait = (!is_alone).then_some(LOOK);
            self.reactor.wait(wait, &mut events)?;
            for event in events.drain(..) {
                self.take_event(event);
            }
            self.clients.close_late(&mut self.reactor);
            for (client, answer) in self.routes.console.sessions.end_late(&mut self.reactor) {
                self.clients.answer(&mut self.reactor, client, &answer);
            }
        }
        Ok(())
    }

    fn take_event(&mut self, event: Event) {
        let Http { shared, reactor, clients, routes } = self;
        match event {
            Event::Accepted { socket, .. } => clients.accept(reactor, socket, shared),
            Event::AcceptFailed { error, .. } => warning!("metrics-port can't accept: {error}"),
            Event::Received { connection, buffer } => {
                let bytes = reactor.bytes(&buffer).to_vec();
                reactor.recycle(buffer);
                if routes.console.sessions.owns(connection) {
                    let answered = routes.console.received(reactor, connection, &bytes);
                    if let Some((client, answer)) = answered {
                        clients.answer(reactor, client, &answer);
                    }
                } else {
                    clients.received(reactor, connection, &bytes, routes);
                }
            }
            Event::Closed { connection, .. } if routes.console.sessions.owns(connection) => {
                let answered = routes.console.sessions.lost(reactor, connection);
                if let Some((client, answer)) = answered {
                    clients.answer(reactor, client, &answer);
                }
            }
            Event::Closed { connection, .. } => clients.ended(reactor, connection),
            Event::Sent { connection, .. } if routes.console.sessions.owns(connection) => {
                routes.console.sessions.sent(reactor, connection);
            }
            Event::Sent { connection, result, .. } => {
                clients.sent(reactor, connection, result.is_ok(), routes);
            }
            Event::Connected { .. } | Event::Woken => {}
        }
    }
}
