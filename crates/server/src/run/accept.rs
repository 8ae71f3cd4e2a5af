//! New connections: who is let in, and which worker gets them.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_acl::access::Access;
use kvasir_reactor::{Address, ListenerId, Socket};

use crate::clients::{Origin, Place};
use crate::net::listen::{ListenerKind, PROTECTED_MODE};
use crate::net::listening::Change;
use crate::run::worker::Worker;
use crate::state::connection::{Connection, Dialect};
use crate::workers::Message;

/// Why a connection is not let in.
enum Refusal {
    Protected,
    TooMany,
}

impl Refusal {
    /// As a client of the protocol understands it.
    fn text(self, is_memcached: bool) -> &'static str {
        match (self, is_memcached) {
            (Refusal::Protected, false) => PROTECTED_MODE,
            (Refusal::Protected, true) => {
                "SERVER_ERROR protected mode: no password is set for the default user, so clients \
                 are only accepted from this machine\r\n"
            }
            (Refusal::TooMany, false) => "-ERR max number of clients reached\r\n",
            (Refusal::TooMany, true) => "ERROR Too many open connections\r\n",
        }
    }
}

impl Worker {
    /// Accepts at other sockets, as the configuration now says.
    pub fn listen_as(&mut self, change: Change) {
        let Change { opened, closed } = change;
        for gone in self.listeners.extract_if(.., |open| closed.contains(&open.number)) {
            self.reactor.unlisten(gone.id);
        }
        opened.into_iter().for_each(|open| self.listen(open));
    }

    /// Gives a new connection to the worker that has the fewest.
    pub fn accept(&mut self, listener: ListenerId, socket: Socket) {
        let stats = &self.shared.workers[self.index].stats;
        let of_listener = self.listeners.iter().find(|open| open.id == listener);
        let Some(kind) = of_listener.map(|open| open.kind) else { return };
        let place = match self.admit(&socket, kind) {
            Ok(place) => place,
            Err(refusal) => {
                stats.rejected_connections.add(1);
                // Who speaks TLS would not understand.
                if !kind.is_tls() {
                    socket.refuse(refusal.text(kind.is_memcached()).as_bytes());
                }
                return;
            }
        };
        stats.connections.add(1);
        let worker = self.shared.workers.least_busy();
        self.shared.workers[worker].connection_count.fetch_add(1, Relaxed);
        if worker == self.index {
            self.adopt(socket, kind, place);
        } else {
            self.shared.send(worker, Message::Adopt { socket, kind, place });
        }
    }

    fn admit(&self, socket: &Socket, kind: ListenerKind) -> Result<Place, Refusal> {
        if !kind.is_tls() && self.is_denied(socket) {
            return Err(Refusal::Protected);
        }
        let place = self.shared.clients.take_place(&self.core.config, kind.is_memcached());
        place.ok_or(Refusal::TooMany)
    }

    /// Whether protected mode keeps a client out.
    fn is_denied(&self, socket: &Socket) -> bool {
        let config = &self.core.config;
        let is_open = || self.shared.acl.default_user().0.is_open();
        config.protected_mode && !is_local(socket) && is_open()
    }

    pub fn adopt(&mut self, socket: Socket, kind: ListenerKind, place: Place) {
        let is_tls = kind.is_tls();
        let tls = is_tls.then(|| self.new_tls(self.is_denied(&socket)));
        let config = &self.core.config;
        // A peer that has gone already is found out by the first receive.
        let _ = socket.set_nodelay();
        let _ = socket.set_keepalive(config.tcp_keepalive);
        let name = |address: std::io::Result<Address>| {
            address.map_or_else(|_| "?:0".into(), |address| address.to_string().into())
        };
        let origin = Origin {
            address: name(socket.peer()),
            local_address: name(socket.local()),
            is_unix: socket.is_unix(),
            is_memcached: kind.is_memcached(),
            is_local: is_local(&socket),
            descriptor: socket.number(),
            connection: 0,
            connection_bytes: size_of::<Connection>(),
        };
        let id = self.reactor.register(socket);
        let index = id.index as usize;
        let origin = Origin { connection: index, ..origin };
        let client = self.shared.clients.add(self.index, origin, self.core.env.now_ms);
        let access = Access::new(&self.shared.acl, &self.shared.table);
        if index >= self.connections.len() {
            self.connections.resize_with(index + 1, || None);
        }
        let mut connection = Connection::new(id, client, access);
        connection.wire.tls = tls;
        if kind.is_memcached() {
            connection.wire.parser = Dialect::Memcached(Default::default());
        }
        connection.is_on_trial = place == Place::Reserved;
        self.connections[index] = Some(Box::new(connection));
        if place == Place::Reserved {
            self.await_proof(id);
        }
        if is_tls {
            self.await_handshake(id);
        }
    }
}

fn is_local(socket: &Socket) -> bool {
    match socket.peer() {
        Ok(Address::Tcp(address)) => address.ip().to_canonical().is_loopback(),
        Ok(Address::Unix(_)) => true,
        Err(_) => false,
    }
}
