"""Which servers have which slots: one that is alone has all, a node of a cluster names the others."""

import redis

__all__ = ["SLOTS", "Address", "Part", "is_cluster", "parts"]

SLOTS = 16384


class Address:
    """How servers are asked. May be sent to other processes."""

    def __init__(self, host="127.0.0.1", port=6379, **options):
        self.host, self.port, self.options = host, int(port), options

    def connect(self):
        return redis.Redis(self.host, self.port, **self.options)

    def connect_to_all(self):
        """A client that finds the node of each key."""
        if is_cluster(self.connect()):
            return redis.cluster.RedisCluster(host=self.host, port=self.port, **self.options)
        return self.connect()

    def at(self, host, port):
        return Address(host, port, **self.options)


class Part:
    """Slots next to each other, and who has them."""

    def __init__(self, address, first, last):
        self.address, self.first, self.last = address, first, last

    def is_there(self):
        """Whether the server that should have the slots says so too."""
        owned = owners(self.address, self.address.connect())
        return any(
            part.first <= self.first
            and self.last <= part.last
            and (part.address.host, part.address.port) == (self.address.host, self.address.port)
            for part in owned
        )


def is_cluster(client):
    return bool(client.info("cluster")["cluster_enabled"])


def owners(address, client):
    found = []
    for first, last, primary, *_ in client.execute_command("CLUSTER", "SLOTS"):
        host = primary[0].decode() if isinstance(primary[0], bytes) else primary[0]
        # A node that does not know what it is called is at the address that was asked.
        found.append(Part(address.at(host or address.host, primary[1]), first, last))
    return sorted(found, key=lambda part: part.first)


def parts(address):
    """All slots, each once; raises `ValueError` if some are served by nobody."""
    client = address.connect()
    if not is_cluster(client):
        return [Part(address, 0, SLOTS - 1)]
    found = owners(address, client)
    served = sum(part.last - part.first + 1 for part in found)
    if served != SLOTS:
        raise ValueError(f"of the cluster's slots {SLOTS - served} are served by nobody")
    return found
