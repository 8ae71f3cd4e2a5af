"""EXPORT as tables of Arrow: for pandas, Polars, DuckDB and whatever else reads them.

    import redis
    from kvasir.analytics import export
    table = export(redis.Redis(), "user:*", "hash", {"name": "utf8", "age": "int64"})
    table.to_pandas()

Needs redis-py, or anything else with `execute_command`, and pyarrow. Of a redis-py client with a
pool one connection is taken for as long as a stream is read: a stream is that connection's which
first pulls it. What is pulled is bytes, whether or not the client decodes what others get.
"""

import pyarrow

__all__ = ["begin", "batches", "export"]


def begin(
    client, match=None, type=None, columns=None, *, keys=None, slots=None, streams=1, nulls=False
):
    """Begins an export of this moment and returns the ids of its streams.

    `columns` are names, or a dictionary from names to types (None: the usual one). Streams may be
    read by other connections of the same user, each by one.
    """
    call = ["EXPORT", "BEGIN"]
    if match is not None:
        call += ["MATCH", match]
    if keys is not None:
        call += ["KEYS", len(keys), *keys]
    if slots is not None:
        call += ["SLOTS", *slots]
    if type is not None:
        call += ["TYPE", type]
    call += ["STREAMS", streams, "ONMISFIT", "NULL" if nulls else "FAIL"]
    if columns is not None:
        call.append("COLUMNS")
        named = columns.items() if hasattr(columns, "items") else ((name, None) for name in columns)
        for name, declared in named:
            call += [name] if declared is None else [name, "AS", declared]
    return client.execute_command(*call)


# redis-py's word for a reply that stays as it came.
_RAW = {"NEVER_DECODE": []}


class _Pinned:
    """One connection of a client, until it is closed; another client as it is."""

    def __init__(self, client):
        # Such a client takes a connection from the pool, and gives it back when it is closed.
        is_redis = hasattr(client, "connection_pool")
        self._is_own = is_redis and not getattr(client, "connection", None)
        self._client = client.client() if self._is_own else client
        self._options = _RAW if is_redis else {}

    def execute_command(self, *words):
        return self._client.execute_command(*words)

    def pull(self, number):
        return self._client.execute_command("EXPORT", "NEXT", number, **self._options)

    def close(self):
        if self._is_own:
            self._client.close()


class _Messages:
    """A stream as a file that pyarrow reads, a pull at a time."""

    def __init__(self, pinned, number):
        self._client, self._number = pinned, number
        self._left, self.closed, self.has_ended = b"", False, False

    def readable(self):
        return True

    def read(self, size=-1):
        parts, length = [], 0
        while size < 0 or length < size:
            if not self._left and not self.pull():
                break
            part = self._left if size < 0 else self._left[: size - length]
            self._left = self._left[len(part) :]
            parts.append(part)
            length += len(part)
        return b"".join(parts)

    def pull(self):
        """Whether there was something more."""
        while not self.has_ended and not self._left:
            self._left = self.next()
        return not self.has_ended

    def next(self):
        """The next bytes; none if they take their time, or there are no more."""
        if self.has_ended:
            return b""
        # If this fails there is nothing more to be had either.
        self.has_ended = True
        pulled = self._client.pull(self._number)
        self.has_ended = pulled is None
        return pulled or b""

    def close(self):
        self.closed = True

    def end(self):
        """Has the server forget the stream."""
        if not self.has_ended:
            self.has_ended = True
            self._client.execute_command("EXPORT", "END", self._number)


def batches(client, number):
    """The record batches of one stream, pulled as they are wanted."""
    pinned = _Pinned(client)
    messages = _Messages(pinned, number)
    try:
        yield from pyarrow.ipc.open_stream(pyarrow.PythonFile(messages, mode="r"))
        # Up to null, which is the end.
        while not messages.has_ended:
            messages.next()
    finally:
        try:
            messages.end()
        finally:
            pinned.close()


def export(client, match=None, type=None, columns=None, **options):
    """The keys of this moment as one table."""
    pinned, streams = _Pinned(client), []
    try:
        numbers = begin(pinned, match, type, columns, **options)
        streams = [_Messages(pinned, number) for number in numbers]
        pulled = [[] for _ in streams]
        # In turn: one of which nothing is pulled for long is given up.
        while not all(stream.has_ended for stream in streams):
            for stream, parts in zip(streams, pulled):
                parts.append(stream.next())
    finally:
        try:
            for stream in streams:
                stream.end()
        finally:
            pinned.close()
    return pyarrow.concat_tables(
        pyarrow.ipc.open_stream(b"".join(parts)).read_all() for parts in pulled
    )
