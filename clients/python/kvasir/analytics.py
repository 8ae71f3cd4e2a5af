"""EXPORT as tables of Arrow: for pandas, Polars, DuckDB and whatever else reads them.

    import redis
    from kvasir.analytics import export
    table = export(redis.Redis(), "user:*", "hash", {"name": "utf8", "age": "int64"})
    table.to_pandas()

Needs redis-py, or anything else with `execute_command`, and pyarrow.
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


class _Messages:
    """A stream as a file that pyarrow reads, a pull at a time."""

    def __init__(self, client, number):
        self._client, self._number = client, number
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
        if not self.has_ended:
            left = self._client.execute_command("EXPORT", "NEXT", self._number)
            # No bytes at all: they take their time.
            while left == b"":
                left = self._client.execute_command("EXPORT", "NEXT", self._number)
            self._left, self.has_ended = left or b"", left is None
        return not self.has_ended

    def close(self):
        self.closed = True


def batches(client, number):
    """The record batches of one stream, pulled as they are wanted."""
    messages = _Messages(client, number)
    yield from pyarrow.ipc.open_stream(pyarrow.PythonFile(messages, mode="r"))
    # Up to null, so that the server forgets the stream.
    while messages.pull():
        pass


def export(client, match=None, type=None, columns=None, **options):
    """The keys of this moment as one table."""
    tables = []
    for number in begin(client, match, type, columns, **options):
        pulled = b"".join(iter(lambda: client.execute_command("EXPORT", "NEXT", number), None))
        tables.append(pyarrow.ipc.open_stream(pulled).read_all())
    return pyarrow.concat_tables(tables)
