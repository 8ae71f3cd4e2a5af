"""redis-py through a ring: without system calls, to a Kvasir of the same machine.

    import redis, kvasir_ring
    client = redis.Redis(connection_pool=kvasir_ring.pool("/run/kvasir/kvasir.sock"))

A server that gives no ring is spoken to over the unix socket, and the log says so.
"""

import logging

import redis
from redis.connection import ConnectionPool, UnixDomainSocketConnection

from .ring import NoRing, RingBroken, RingSocket, ask

__all__ = ["NoRing", "RingBroken", "RingConnection", "RingSocket", "ask", "pool"]
__version__ = "0.1.0"

log = logging.getLogger("kvasir_ring")


class RingConnection(UnixDomainSocketConnection):
    """A connection that asks for a ring once it is authenticated."""

    def __init__(self, path="", ring_size=None, **options):
        self.ring_size = ring_size
        self.has_ring = False
        super().__init__(path=path, **options)

    def on_connect_check_health(self, check_health=True):
        super().on_connect_check_health(check_health=check_health)
        self._move_to_ring()

    def _move_to_ring(self):
        self.has_ring = False
        try:
            self._sock = ask(self._sock, self.ring_size)
        except NoRing as reason:
            log.warning("no ring, going on over %s: %s", self.path, reason)
            return
        self.has_ring = True
        self._parser.on_connect(self)


if not hasattr(UnixDomainSocketConnection, "on_connect_check_health"):

    def _on_connect(self):
        super(RingConnection, self).on_connect()
        self._move_to_ring()

    RingConnection.on_connect = _on_connect


def pool(path, **options):
    """A pool of connections through rings, for `redis.Redis(connection_pool=...)`."""
    return ConnectionPool(connection_class=RingConnection, path=path, **options)
