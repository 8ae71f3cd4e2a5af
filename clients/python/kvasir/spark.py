"""Kvasir for PySpark 4.1 and later: keys as a data frame, and a data frame as keys.

    from kvasir.spark import register
    register(spark)
    columns = "__key string, name string, age bigint"
    users = spark.read.format("kvasir").schema(columns).load("user:*")
    users.filter("age > 30").write.format("kvasir").mode("append").save()

A partition is a range of slots, which the node that has them is asked for by EXPORT as the task
begins: each shows one moment of its own, and a task that is tried again asks again.

Options: `host`, `port`, `username`, `password`, `db`, `ssl`, `ssl_ca_certs`; `type` (string, hash,
list, set, zset, stream; otherwise columns or the first key tell it); of reading `partitions` (8),
`misfits` (`fail`, or `null` where a value does not fit its column), `sample` (100 keys, whose
fields are the columns if no schema is given); of writing `key`, the column whose values take the
place of `*` in the pattern.
"""

import datetime
import decimal
import inspect

import pyarrow
import pyarrow.compute
from pyspark.sql import types
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceWriter,
    EqualNullSafe,
    EqualTo,
    In,
    InputPartition,
    IsNotNull,
    StringStartsWith,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from redis.crc import key_slot

from kvasir.analytics import batches, begin
from kvasir.nodes import SLOTS, Address, Part, is_cluster, parts

__all__ = ["KvasirSource", "register"]

KEY, VALUE, MEMBER, SCORE, INDEX, ID = "__key", "__value", "__member", "__score", "__index", "__id"
TYPE, TTL, SLOT = "__type", "__ttl", "__slot"
PARTITIONS = 8
SAMPLE = 100
PIPELINE = 1000

# What a column is asked of the server as.
EXPORTED = {
    types.StringType: "utf8",
    types.BinaryType: "binary",
    types.ByteType: "int64",
    types.ShortType: "int64",
    types.IntegerType: "int64",
    types.LongType: "int64",
    types.FloatType: "float64",
    types.DoubleType: "float64",
    types.BooleanType: "bool",
    types.TimestampType: "timestamp",
    # What the server has no word for comes as text, and is read here.
    types.DateType: "utf8",
    types.DecimalType: "utf8",
    types.TimestampNTZType: "utf8",
}

# Names that mean something else than a field, or would be taken for it.
TAKEN = {KEY, VALUE, MEMBER, SCORE, INDEX, ID, TYPE, TTL, SLOT, "__fields"}

OWN_COLUMNS = {
    "string": [(VALUE, "string")],
    "hash": [],
    "list": [(INDEX, "long"), (MEMBER, "string")],
    "set": [(MEMBER, "string")],
    "zset": [(MEMBER, "string"), (SCORE, "double")],
    "stream": [(ID, "string")],
}


def register(spark):
    """Lets `spark` know of the format, and that filters may be given to it."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(KvasirSource)


class KvasirSource(DataSource):
    @classmethod
    def name(cls):
        return "kvasir"

    def __init__(self, options):
        super().__init__(options)
        given = {
            name: options[name]
            for name in ("username", "password", "db", "ssl_ca_certs")
            if name in options
        }
        if options.get("ssl", "false") == "true":
            given["ssl"] = True
        self.address = Address(
            options.get("host", "127.0.0.1"), options.get("port", 6379), **given
        )
        self.pattern = options.get("path", "*")
        if options.get("type") not in (None, *OWN_COLUMNS):
            raise ValueError(f"there is no type {options['type']!r}: {', '.join(OWN_COLUMNS)}")

    def schema(self):
        """Of the first key's type; fields are texts."""
        keys = self.sample(int(self.options.get("sample", SAMPLE)))
        kind = self.options.get("type") or (keys[0][0] if keys else None)
        if kind is None:
            raise ValueError(f"no key matches {self.pattern}, and without a schema one has to")
        columns = [(KEY, "string"), *OWN_COLUMNS[kind]]
        columns += [(field, "string") for field in self.fields(kind, keys) if field not in TAKEN]
        columns += [(TTL, "long")]
        schema = types.StructType()
        for name, data_type in columns:
            schema = schema.add(name, data_type)
        return schema

    def sample(self, count):
        """Types and names of some keys, and who has them."""
        wanted = self.options.get("type")
        found = []
        for part in {(p.address.host, p.address.port): p for p in parts(self.address)}.values():
            client = part.address.connect()
            for key in client.scan_iter(match=self.pattern, count=1000, _type=wanted):
                found.append((client.type(key).decode(), key, client))
                if len(found) == count:
                    return found
        return found

    @staticmethod
    def fields(kind, keys):
        names = {}
        for key_kind, key, client in keys:
            if key_kind == kind == "hash":
                names.update(dict.fromkeys(client.hkeys(key)))
            elif key_kind == kind == "stream":
                for _, entry in client.xrange(key, count=10):
                    names.update(dict.fromkeys(entry))
        return sorted(name.decode() for name in names)

    def reader(self, schema):
        return Reader(self, schema)

    def writer(self, schema, overwrite):
        if overwrite:
            raise ValueError("overwriting would delete keys: write with mode('append')")
        return Writer(self, schema)


def kind_of(options, schema):
    """The type that is said, or that the columns tell."""
    if "type" in options:
        return options["type"]
    names = set(schema.fieldNames())
    for column, kind in ((VALUE, "string"), (SCORE, "zset"), (INDEX, "list"), (ID, "stream")):
        if column in names:
            return kind
    if MEMBER in names:
        raise ValueError(f"{MEMBER} is of a list, a set or a zset: say which by option('type')")
    return "hash" if names - {KEY, TYPE, TTL, SLOT} else None


class Slots(InputPartition):
    """What a task reads."""

    def __init__(self, part, keys=None):
        super().__init__((part.first, part.last))
        self.part, self.keys = part, keys


class Reader(DataSourceReader):
    def __init__(self, source, schema):
        self.address, self.pattern = source.address, source.pattern
        self.nulls = source.options.get("misfits", "fail") == "null"
        self.wanted = int(source.options.get("partitions", PARTITIONS))
        self.kind = kind_of(source.options, schema)
        self.schema, self.keys = arrow_schema(schema), None
        self.columns = {}
        for field in schema.fields:
            exported = EXPORTED.get(type(field.dataType))
            if exported is None:
                raise ValueError(f"a column cannot be {field.dataType.simpleString()}: {field.name}")
            self.columns[field.name] = exported

    def pushFilters(self, filters):
        """Names of keys and how they begin; Spark has to do the others."""
        for each in filters:
            if getattr(each, "attribute", None) != (KEY,) or not self.takes(each):
                yield each

    def takes(self, each):
        values = each.value if isinstance(each, In) else [getattr(each, "value", None)]
        if not all(value is None or isinstance(value, str) for value in values):
            # A key that is bytes: Spark looks for it.
            return False
        if isinstance(each, (EqualTo, EqualNullSafe)):
            self.name_keys([each.value])
        elif isinstance(each, In):
            self.name_keys(each.value)
        elif isinstance(each, StringStartsWith):
            return self.begin_with(each.value)
        else:
            # A row has a key.
            return isinstance(each, IsNotNull)
        return True

    def name_keys(self, names):
        names = {name for name in names if name is not None}
        self.keys = names if self.keys is None else self.keys & names

    def begin_with(self, prefix):
        """Only where the pattern itself is a beginning can another be said by a pattern."""
        before, star, after = self.pattern.partition("*")
        if not star or after or any(letter in before for letter in "?[\\"):
            return False
        if prefix.startswith(before):
            self.pattern = "".join("\\" + c if c in "*?[]\\" else c for c in prefix) + "*"
        elif not before.startswith(prefix):
            self.keys = set()
        return True

    def partitions(self):
        owned = parts(self.address)
        if self.keys is not None:
            return self.named(owned)
        size = max(1, SLOTS // max(self.wanted, 1))
        pieces = []
        for part in owned:
            count = max(1, round((part.last - part.first + 1) / size))
            edges = [part.first + (part.last + 1 - part.first) * n // count for n in range(count + 1)]
            for first, end in zip(edges, edges[1:]):
                pieces.append(Slots(Part(part.address, first, end - 1)))
        return pieces

    def named(self, owned):
        """Of a cluster's node keys of one slot are asked for at a time."""
        if not is_cluster(self.address.connect()):
            return [Slots(part, list(self.keys)) for part in owned if self.keys]
        by_slot = {}
        for key in self.keys:
            by_slot.setdefault(key_slot(key.encode()), []).append(key)
        pieces = []
        for slot, keys in by_slot.items():
            owner = next(part for part in owned if part.first <= slot <= part.last)
            pieces.append(Slots(Part(owner.address, slot, slot), keys))
        return pieces

    def read(self, partition):
        # Where there are no partitions Spark asks for one of its own: of no keys.
        part = getattr(partition, "part", None)
        if part is None:
            return
        client = part.address.connect()
        (number,) = begin(
            client, self.pattern, self.kind, self.columns, keys=partition.keys,
            slots=(part.first, part.last), nulls=self.nulls,
        )
        # Slots that went before the export began would be missed.
        if is_cluster(client) and not part.is_there():
            raise ValueError(f"slots {part.first} to {part.last} have moved: ask again")
        for batch in batches(client, number):
            if batch.num_rows:
                columns = [
                    fitted(column, f, self.nulls) for column, f in zip(batch.columns, self.schema)
                ]
                yield pyarrow.RecordBatch.from_arrays(columns, schema=self.schema)


def arrow_schema(schema):
    """Timestamps are of a zone, which PySpark has to be told since 4.2."""
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


def fitted(column, field, nulls):
    """The column in its type; what does not fit is null, or an error."""
    if pyarrow.types.is_timestamp(field.type) and pyarrow.types.is_string(column.type):
        # Of no zone, but who wrote it may have said UTC.
        column = pyarrow.compute.replace_substring_regex(column, r"(Z|[+]00:00)$", "")
    try:
        return column.cast(field.type)
    except pyarrow.ArrowInvalid:
        values = [fitted_value(value, field, nulls) for value in column]
        return pyarrow.array(values, field.type)


def fitted_value(value, field, nulls):
    try:
        return value.cast(field.type).as_py()
    except pyarrow.ArrowInvalid:
        if nulls:
            return None
        text = f"{value.as_py()!r} does not fit column {field.name!r} of type {field.type}"
        raise ValueError(f"{text}: declare another type, or option('misfits', 'null')") from None


class Writer(DataSourceWriter):
    """Rows become hashes, strings, members of sets and of sorted sets; a null is not written."""

    def __init__(self, source, schema):
        self.address, self.kind = source.address, kind_of(source.options, schema)
        if self.kind not in ("string", "hash", "set", "zset"):
            raise ValueError(f"a {self.kind} is not written: its order is its meaning")
        names = schema.fieldNames()
        self.key = source.options.get("key", KEY)
        for column in (self.key, *(name for name, _ in OWN_COLUMNS[self.kind])):
            if column not in names:
                raise ValueError(f"a {self.kind} is written from column {column}, which is not there")
        for field in schema.fields:
            if type(field.dataType) not in EXPORTED:
                raise ValueError(f"{field.dataType.simpleString()} cannot be written: {field.name}")
        self.before, star, self.after = source.pattern.partition("*")
        if not star or any(letter in self.before + self.after for letter in "*?[\\"):
            raise ValueError(f"keys are written by a pattern with one *: not {source.pattern!r}")
        self.fields = [name for name in names if name not in (self.key, KEY, TYPE, TTL, SLOT)]
        self.local = {
            field.name for field in schema.fields if isinstance(field.dataType, types.TimestampNTZType)
        }
        self.has_ttl = TTL in names

    def write(self, rows):
        pipe, waiting = self.address.connect_to_all().pipeline(transaction=False), 0
        for row in rows:
            self.add(pipe, row)
            waiting += 1
            if waiting == PIPELINE:
                pipe.execute()
                waiting = 0
        pipe.execute()
        return WriterCommitMessage()

    def name(self, row):
        value = row[self.key]
        if value is None:
            raise ValueError(f"a row without {self.key} cannot be written")
        name = text(value, self.key in self.local)
        if self.key != KEY:
            return self.before.encode() + name + self.after.encode()
        before, after = self.before.encode(), self.after.encode()
        inside = len(name) >= len(before) + len(after)
        if not inside or not name.startswith(before) or not name.endswith(after):
            pattern = f"{self.before}*{self.after}"
            raise ValueError(f"the key {name.decode(errors='replace')!r} is not one of {pattern}")
        return name

    def add(self, pipe, row):
        name = self.name(row)
        wanted = [column for column, _ in OWN_COLUMNS[self.kind]]
        for column in wanted:
            if row[column] is None:
                raise ValueError(f"the row of {name!r} has no {column}")
        if self.kind == "string":
            pipe.set(name, text(row[VALUE], VALUE in self.local))
        elif self.kind == "set":
            pipe.sadd(name, text(row[MEMBER], MEMBER in self.local))
        elif self.kind == "zset":
            pipe.zadd(name, {text(row[MEMBER], MEMBER in self.local): row[SCORE]})
        else:
            values = {
                field: text(row[field], field in self.local)
                for field in self.fields
                if row[field] is not None
            }
            if not values:
                raise ValueError(f"the row of {name!r} has no field")
            pipe.hset(name, mapping=values)
        if self.has_ttl and row[TTL] is not None:
            pipe.pexpire(name, row[TTL])


def text(value, is_local=False):
    """As the value is kept, and EXPORT reads it; a moment that is local is of no zone."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, decimal.Decimal):
        return format(value, "f").encode()
    if isinstance(value, datetime.datetime) and is_local:
        digits = "microseconds" if value.microsecond % 1000 else "milliseconds"
        return value.isoformat(timespec=digits).encode()
    if isinstance(value, datetime.datetime):
        moment = value.astimezone(datetime.timezone.utc)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()
    if isinstance(value, float):
        return repr(value).encode()
    return str(value).encode()
