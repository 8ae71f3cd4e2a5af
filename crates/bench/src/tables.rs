//! What the report shows: a table for each kind of measurement, and its columns.

/// A table of the report.
pub struct Table {
    pub name: &'static str,
    pub title: &'static str,
    pub note: &'static str,
    pub columns: &'static [Column],
}

pub struct Column {
    pub metric: &'static str,
    pub title: &'static str,
    pub decimals: usize,
    /// Compared with each peer, and drawn as a chart.
    pub compared: bool,
}

pub const fn column(metric: &'static str, title: &'static str, decimals: usize) -> Column {
    Column { metric, title, decimals, compared: false }
}

pub const fn compared(metric: &'static str, title: &'static str, decimals: usize) -> Column {
    Column { metric, title, decimals, compared: true }
}

pub static TABLES: &[Table] = &[
    Table {
        name: "speed",
        title: "GET and SET, uniform over all keys, 50 connections, one worker",
        note: "CPU is user and system time of all server threads. Where the load's core is busier \
               than the server's, the load generator sets the throughput, not the server. The \
               server waited while something else had its core: that should be near 0. Above a \
               slowness of 1 the machine did not come to its full pace in four tries.",
        columns: &[
            compared("ops_s", "operations/s", 0),
            column("p50_ms", "p50 ms", 3),
            column("p99_ms", "p99 ms", 3),
            compared("cpu_us", "CPU us/op", 3),
            column("server_busy", "server busy %", 0),
            column("server_waited", "server waited %", 1),
            column("load_busy", "load busy %", 0),
            column("machine_slowness", "machine's slowness", 2),
        ],
    },
    Table {
        name: "memory",
        title: "Resident memory per key",
        note: "VmRSS less that of the empty server, by the number of keys: right after loading, \
               and after the runs above. Loading is one connection with large pipelines.",
        columns: &[
            compared("loaded_b", "B/key loaded", 1),
            column("used_b", "B/key used", 1),
            column("empty_mb", "empty MB", 1),
            column("load_ops_s", "loading keys/s", 0),
        ],
    },
    Table {
        name: "threads",
        title: "One worker and two",
        note: "A tenth of the keys. One worker has a core of its own; two share both cores with the \
               load, so throughput and latency would say nothing, and CPU per operation does.",
        columns: &[
            compared("cpu_us", "CPU us/op", 3),
            column("cpu_to_one", "to one worker", 2),
            column("machine_slowness", "machine's slowness", 2),
        ],
    },
    Table {
        name: "clients",
        title: "GET without a pipeline, from few connections to many, one worker",
        note: "A tenth of the keys. All connections are on one core: few wait for \
               each other there, many for that core.",
        columns: &[
            compared("ops_s", "operations/s", 0),
            compared("p50_ms", "p50 ms", 3),
            column("p99_ms", "p99 ms", 3),
            compared("cpu_us", "CPU us/op", 2),
            column("server_busy", "server busy %", 0),
            column("load_busy", "load busy %", 0),
        ],
    },
    Table {
        name: "tls",
        title: "GET and SET over TLS, 50 connections, one worker",
        note: "A tenth of the keys. TLS 1.3; the server shows a certificate, clients none. What TLS \
               adds is CPU per operation above that of the same server without.",
        columns: &[
            compared("cpu_us", "CPU us/op", 2),
            compared("added_us", "TLS adds us/op", 2),
            column("ops_s", "operations/s", 0),
            column("p99_ms", "p99 ms", 3),
            column("server_busy", "server busy %", 0),
            column("load_busy", "load busy %", 0),
        ],
    },
    Table {
        name: "idle",
        title: "Idle connections",
        note: "Memory of the process that they add: only connected, and after one PING each. \
               Sockets in the kernel are not part of it.",
        columns: &[
            compared("connected_mb", "connected MB", 2),
            column("used_mb", "after a PING MB", 2),
            column("idle_cpu_percent", "idle CPU %", 2),
        ],
    },
    Table {
        name: "rest",
        title: "Resident memory when what a server was given is gone",
        note: "VmRSS at the start; when all keys were deleted and all clients have left; and 30 s \
               later, in which nobody asked anything.",
        columns: &[
            column("empty_mb", "empty MB", 1),
            column("loaded_mb", "after the load MB", 1),
            compared("rested_mb", "after a rest MB", 1),
        ],
    },
    Table {
        name: "pause",
        title: "Longest round trip of a PING while the data set grows",
        note: "Another connection sends PING about every 200 us. The machine's own longest stall \
               in the same thread stands beside it, and for how much of the time something else \
               had the server's core: pauses from these are not the server's.",
        columns: &[
            compared("max_ms", "max ms", 2),
            column("p999_ms", "p99.9 ms", 2),
            column("p50_ms", "p50 ms", 3),
            column("server_waited", "server waited %", 1),
            column("stall_max_ms", "machine's stall ms", 2),
            column("load_ops_s", "loading keys/s", 0),
        ],
    },
    Table {
        name: "collections",
        title: "Memory of collections at equal content, per element",
        note: "VmRSS less that of the empty server, and what MEMORY USAGE says with every element \
               looked at, both by the number of elements.",
        columns: &[
            compared("resident_b", "B/element resident", 1),
            compared("usage_b", "B/element MEMORY USAGE", 1),
            column("resident_mb", "resident MB", 1),
            column("load_elements_s", "loading elements/s", 0),
        ],
    },
    Table {
        name: "commands",
        title: "Server CPU per operation, pipeline 16, 50 connections, one worker",
        note: "CPU is user and system time of all server threads.",
        columns: &[
            compared("cpu_us", "CPU us/op", 3),
            column("ops_s", "operations/s", 0),
            column("server_busy", "server busy %", 0),
            column("load_busy", "load busy %", 0),
        ],
    },
    Table {
        name: "stall",
        title: "Longest round trip of a PING while a large value goes away",
        note: "Another connection sends PING about every 200 us. The machine's own longest stall \
               in the same thread stands beside it, and what happens where nothing goes away.",
        columns: &[
            compared("max_ms", "max ms", 2),
            column("p50_ms", "p50 ms", 3),
            column("stall_max_ms", "machine's stall ms", 2),
            column("gone_ms", "gone after ms", 2),
        ],
    },
    Table {
        name: "pubsub",
        title: "Server CPU per PUBLISH to subscribers of one channel, one worker",
        note: "Messages of 64 B. CPU is user and system time of all server threads. A round trip is \
               one publisher's pipeline and its replies.",
        columns: &[
            compared("publish_us", "CPU us/PUBLISH", 2),
            column("delivery_us", "CPU us/delivery", 3),
            column("round_trip_us", "round trip us", 0),
        ],
    },
    Table {
        name: "scripts",
        title: "Server CPU per small script or transaction, 50 connections, one worker",
        note: "The script is a token bucket: a GET and a SET of one declared key. A transaction is \
               MULTI, SET, GET, INCR, EXEC.",
        columns: &[
            compared("cpu_us", "CPU us/op", 2),
            column("ops_s", "operations/s", 0),
            column("server_busy", "server busy %", 0),
        ],
    },
    Table {
        name: "scripts-threads",
        title: "Token buckets on one worker and two",
        note: "One worker has a core of its own; two share both cores with the load. Capacity is \
               what the workers would do on cores of their own: their number by CPU per operation.",
        columns: &[
            compared("cpu_us", "CPU us/op", 2),
            column("ops_s", "operations/s", 0),
            column("ops_to_one", "operations/s to one worker", 2),
            column("capacity_to_one", "capacity to one worker", 2),
        ],
    },
    Table {
        name: "graph",
        title: "PageRank, an iteration, where the data is and where it is not",
        note: "Building is from keys, from a text for C and scipy. What a client and a script need \
               is measured on 200,000 edges and grows with them. GET beside it comes every 200 us \
               from another connection, on the same two cores.",
        columns: &[
            compared("iteration_s", "iteration s", 4),
            column("build_s", "building s", 2),
            column("memory_mb", "memory MB", 0),
            column("get_p99_ms", "GET p99 ms", 3),
            column("get_alone_p99_ms", "GET p99 ms alone", 3),
            column("nodes", "nodes", 0),
            column("sum", "sum of ranks", 6),
        ],
    },
    Table {
        name: "pagerank",
        title: "PageRank by a client that keeps the graph in a server, an iteration",
        note: "Neighbours and rank of each node are fetched, and its rank is written, a thousand \
               nodes to a call: MGET and MSET, or `get` of many keys and pipelined `set`. CPU is \
               of all server threads, and of the client's one.",
        columns: &[
            compared("iteration_s", "iteration s", 4),
            compared("server_s", "server CPU s", 4),
            column("client_s", "client CPU s", 4),
            column("kernel_share", "server in kernel %", 0),
            column("objects_s", "objects/s", 0),
            column("nodes", "nodes", 0),
            column("edges", "edges", 0),
            column("sum", "sum of ranks", 3),
        ],
    },
    Table {
        name: "columns",
        title: "Hashes as columns in Python",
        note: "Eight fields of some 100 B each.",
        columns: &[
            compared("rows_s", "rows/s", 0),
            column("seconds", "seconds", 3),
            column("rows", "rows", 0),
            column("get_p99_ms", "GET p99 ms", 3),
        ],
    },
    Table {
        name: "snapshot",
        title: "Saving in the background, and starting from the files",
        note: "Keys of 16 B, values that nothing compresses (`rdbcompression no`), nobody else at \
               work. Threads and files are Kvasir's; the peers have one of each. From BGSAVE until \
               INFO says that it is over, and from the program's start until it answers PING.",
        columns: &[
            compared("save_s", "saving s", 2),
            compared("start_s", "starting s", 2),
            column("file_mb", "files MB", 0),
            column("save_mb_s", "saving MB/s", 0),
            column("start_mb_s", "starting MB/s", 0),
        ],
    },
    Table {
        name: "snapshot-load",
        title: "What a snapshot costs those who write meanwhile",
        note: "One connection overwrites keys in batches of 64, another one by one every 200 us; its \
               round trips are shown. Server on one core, load on the other. Memory added: what \
               the process took at most above what it had, and with a fork what was copied \
               (`rdb_last_cow_size`). Stolen: for how long during the save the host of a virtual \
               machine gave the server's core to others.",
        columns: &[
            compared("added_mb", "memory added MB", 0),
            column("p999_before_ms", "p99.9 before ms", 2),
            compared("p999_ms", "p99.9 during ms", 2),
            column("max_before_ms", "max before ms", 2),
            compared("max_ms", "max during ms", 2),
            column("stall_max_ms", "machine's stall ms", 2),
            column("stolen_ms", "stolen ms", 0),
            column("save_s", "saving s", 1),
        ],
    },
    Table {
        name: "aof",
        title: "The append-only file, by how it is synced",
        note: "No pipeline, one worker; nothing rewrites. Operations and CPU to the same server's \
               without the file, and to its `everysec`; where the log goes by io_uring, CPU to \
               that of the same without.",
        columns: &[
            compared("ops_s", "operations/s", 0),
            column("ops_to_off", "to off", 2),
            column("ops_to_everysec", "to everysec", 2),
            compared("cpu_us", "CPU us/op", 2),
            column("cpu_to_off", "CPU to off", 2),
            column("cpu_to_plain", "CPU to system calls", 2),
            column("resident_mb", "resident MB", 0),
            column("average_ms", "average ms", 2),
            column("min_ms", "min ms", 2),
            column("p50_ms", "p50 ms", 2),
            compared("p99_ms", "p99 ms", 2),
            column("max_ms", "max ms", 2),
        ],
    },
    Table {
        name: "aof-calls",
        title: "System calls for 1000 requests",
        note: "Counted by strace in runs of their own, of all threads. us: in the kernel, for \
               each sync and for each request.",
        columns: &[
            column("reads", "reads", 1),
            column("writes", "writes", 1),
            column("syncs", "syncs", 1),
            column("polls", "polls", 1),
            column("rings", "io_uring", 1),
            column("futexes", "futex", 1),
            column("others", "others", 1),
            column("sync_us", "us/sync", 0),
            column("calls_us", "us/request", 1),
        ],
    },
    Table {
        name: "aof-readers",
        title: "One who reads every 200 us, beside writers that wait for the disk",
        note: "`appendfsync always`; round trips of GET with nobody else there, and beside 50 \
               connections that SET.",
        columns: &[
            column("p99_alone_ms", "p99 alone ms", 3),
            compared("p99_ms", "p99 beside ms", 3),
            column("p99_to_alone", "beside to alone", 2),
            column("max_ms", "max beside ms", 2),
        ],
    },
    Table {
        name: "aof-start",
        title: "Starting from a log",
        note: "A log that was never rewritten, from the program's start until it answers PING. \
               One worker, both cores.",
        columns: &[
            compared("start_s", "starting s", 2),
            column("file_mb", "files MB", 0),
            column("start_mb_s", "starting MB/s", 0),
            column("resident_mb", "resident MB", 0),
        ],
    },
    Table {
        name: "churn",
        title: "Resident memory under churn, in percent of maxmemory",
        note: "12 times the limit in new keys whose values' sizes change from phase to phase, 16 B \
               to 16 KiB. VmRSS of the whole process: its highest behind a phase, and 5 s after \
               the last write.",
        columns: &[
            compared("end_percent", "at the end %", 1),
            compared("max_percent", "highest %", 1),
            compared("cpu_us", "CPU us/SET", 2),
            column("write_ops_s", "SET/s", 0),
        ],
    },
    Table {
        name: "compression",
        title: "Values of 10 KB kept compressed",
        note: "VmRSS less that of the empty server, by the number of keys, and its ratio to the same \
               server without compression; CPU of all server threads for setting every key to \
               another value and for reading it, by one connection with a pipeline of 16. The \
               package index is Debian's. The peers do not compress: their figures stand in each \
               row for comparison.",
        columns: &[
            compared("resident_b", "B/key resident", 0),
            column("to_plain", "to uncompressed", 3),
            compared("set_us", "CPU us/SET", 2),
            compared("get_us", "CPU us/GET", 2),
        ],
    },
    Table {
        name: "replication",
        title: "A replica over a link of 100 Mbit/s, which gets its snapshot while clients write",
        note: "A primary with data joins a replica of its own kind; then four connections send the \
               requests, of values of 1 KB, with pipelines of 16. The link is a program that lets \
               through what a token bucket has. The buffer is what the primary says that it keeps \
               for the replica, at most: a replication buffer, or a log. Its ratio is that of the \
               stream to what was kept of it; synchronized is when the replica has all. Peers keep \
               the stream as it comes, with no limit on it.",
        columns: &[
            compared("ops_s", "requests/s", 0),
            compared("cpu_us", "CPU us/request", 2),
            compared("buffer_mb", "buffer MB", 1),
            column("ratio", "times smaller", 2),
            compared("sync_s", "synchronized s", 1),
            column("sent_mb", "over the link MB", 0),
            column("faults", "page faults/request", 3),
            compared("peak_mb", "peak MB resident", 0),
            column("full_syncs", "full syncs", 0),
        ],
    },
    Table {
        name: "inside",
        title: "GET at pipeline 16 while somebody looks into the server, 50 connections, one worker",
        note: "By turns on one server whose metrics-port is open, so only Kvasir's; medians of five \
               turns, and of the ratios within each. CPU is of all server threads, what answers \
               HTTP and makes reports too. The second row is another process, with the same keys. \
               Reports are made in a thread that has no core of its own here.",
        columns: &[
            column("ops_s", "operations/s", 0),
            column("cpu_us", "CPU us/op", 3),
            column("cpu_to_unseen", "CPU to nobody", 3),
            column("p99_ms", "p99 ms", 3),
            column("p99_to_unseen", "p99 to nobody", 2),
            column("looks", "looks", 0),
            column("server_waited", "server waited %", 1),
            column("machine_slowness", "machine's slowness", 2),
        ],
    },
    Table {
        name: "inside-report",
        title: "GET every 200 us while MEMORY REPORT goes through all keys, one worker",
        note: "By turns, medians of five. Server, report and client share both cores. By how much the \
               sleeps between two calls were too long is what the machine adds.",
        columns: &[
            column("p50_ms", "p50 ms", 3),
            column("p99_ms", "p99 ms", 3),
            column("p99_to_alone", "p99 to alone", 2),
            column("max_ms", "max ms", 2),
            column("stall_p99_ms", "p99 of sleeps ms", 3),
            column("took_s", "s", 2),
            column("calls", "calls", 0),
        ],
    },
    Table {
        name: "ring",
        title: "One client that waits for each reply, by three ways",
        note: "CPU is of all server threads, and of the client's one, for each call. Both spin for \
               some microseconds before they sleep, where there is a ring; the client of a socket \
               sleeps at once. Values are of the objects, without the protocol.",
        columns: &[
            compared("trip_us", "round trip us", 2),
            compared("server_us", "server CPU us/call", 2),
            column("client_us", "client CPU us/call", 2),
            column("kernel_share", "server in kernel %", 0),
            column("objects_s", "objects/s", 0),
            column("mb_s", "MB/s", 1),
        ],
    },
    Table {
        name: "memcached",
        title: "memcached's protocol: one client that waits for each reply",
        note: "CPU is of all server threads, and of the client's one, for each call.",
        columns: &[
            compared("trip_us", "round trip us", 2),
            compared("server_us", "server CPU us/call", 2),
            column("client_us", "client CPU us/call", 2),
            column("kernel_share", "server in kernel %", 0),
            column("objects_s", "objects/s", 0),
            column("mb_s", "MB/s", 1),
        ],
    },
    Table {
        name: "chase",
        title: "A replica that starts empty behind a link of 80 Mbit/s, while clients write twice that",
        note: "Clients overwrite 50,000 keys with values of 1 KB at 20 MB a second, for ten minutes \
               if not told otherwise, with all options as they are by default. Behind is how long \
               after the last write the replica has all.",
        columns: &[
            column("written_mb", "written MB", 0),
            column("sent_mb", "over the link MB", 0),
            column("full_syncs", "full syncs", 0),
            compared("peak_mb", "peak MB resident", 0),
            column("disk_mb", "on disk MB", 0),
            compared("behind_s", "behind s", 1),
        ],
    },
    Table {
        name: "full-sync",
        title: "A replica that gets a large data set, while a client reads and writes",
        note: "Added is what the primary takes more, at most; a call is a PING and a SET, every 200 \
               us from a thread of its own. The machine's share of the longest wait is told apart.",
        columns: &[
            column("data_mb", "resident MB before", 0),
            compared("added_mb", "added MB", 0),
            compared("sync_s", "synchronized s", 1),
            compared("max_ms", "longest call ms", 1),
            compared("p99_ms", "p99 ms", 2),
            column("stall_max_ms", "machine's longest stall ms", 1),
        ],
    },
    Table {
        name: "broken-sync",
        title: "A replica that starts empty, and whose link breaks when half of the data has come",
        note: "The link carries 800 Mbit/s and is there again at once. What goes over it is the data \
               once where the transfer goes on, one and a half times where it begins anew.",
        columns: &[
            column("data_mb", "data MB", 0),
            compared("sent_mb", "over the link MB", 0),
            compared("sync_s", "synchronized s", 1),
        ],
    },
    Table {
        name: "cluster-speed",
        title: "Three primaries and three replicas, by redis-benchmark --cluster",
        note: "All six on one core, 30 connections from the other one. CPU is that of all six.",
        columns: &[compared("ops_s", "operations/s", 0), compared("cpu_us", "CPU us/op", 3)],
    },
    Table {
        name: "cluster-reshard",
        title: "A thousand slots move, while a client writes to keys of theirs",
        note: "By hand from one primary to another, all at once back. A call that is sent elsewhere \
               counts with its way there; an error is what a client cannot follow, such as TRYAGAIN.",
        columns: &[
            column("keys", "keys", 0),
            compared("moved_s", "moved s", 2),
            compared("max_ms", "longest call ms", 1),
            column("p99_ms", "p99 ms", 2),
            column("errors", "errors", 0),
        ],
    },
    Table {
        name: "cluster-failover",
        title: "A primary is killed",
        note: "cluster-node-timeout is 2 s. Until a write to one of its slots is answered again.",
        columns: &[compared("without_s", "without a primary s", 2)],
    },
];
