//! The commands of replication, persistence, clusters and modules, at a server that has none.

use crate::check::{check, check_ours};

#[test]
fn what_is_true_of_a_server_alone() {
    check(&[
        ("ROLE; WAIT 0 10; WAIT 1 1", "[$master :0 []]; :0; :0"),
        (
            "WAIT x 1; WAIT 1 -1; WAIT 1 x",
            "-ERR value is not an integer or out of range; -ERR timeout is negative; \
             -ERR timeout is not an integer or out of range",
        ),
        ("REPLICAOF NO ONE; SLAVEOF no one", "+OK; +OK"),
        (
            "REPLICAOF a b; REPLICAOF a; SLAVEOF a 70000",
            "-ERR Invalid master port; -ERR wrong number of arguments for 'replicaof' command; \
             -ERR Invalid master port",
        ),
        (
            "FAILOVER; FAILOVER ABORT; FAILOVER TO a; FAILOVER TO a 1 FORCE; FAILOVER x",
            "-ERR FAILOVER requires connected replicas.; -ERR No failover in progress.; \
             -ERR syntax error; -ERR FAILOVER requires connected replicas.; -ERR syntax error",
        ),
        (
            "SAVE x; BGSAVE x; BGSAVE SCHEDULE x",
            "-ERR wrong number of arguments for 'save' command; -ERR syntax error; -ERR syntax error",
        ),
        (
            "SENTINEL masters; SHUTDOWN ABORT; SHUTDOWN x",
            "-ERR unknown command 'SENTINEL', with args beginning with: 'masters' ; \
             -ERR No shutdown in progress.; -ERR syntax error",
        ),
        (
            "RESTORE-ASKING k 0 x; MODULE LIST",
            "-ERR DUMP payload version or checksum are wrong; []",
        ),
    ]);
}

#[test]
fn no_cluster() {
    let disabled = "-ERR This instance has cluster support disabled";
    check(&[
        (
            "CLUSTER INFO; CLUSTER HELP; CLUSTER NODES; CLUSTER COUNTKEYSINSLOT x; ASKING; READONLY; \
             READWRITE",
            &[disabled; 7].join("; "),
        ),
        (
            "CLUSTER NOSUCH; CLUSTER KEYSLOT; CLUSTER",
            "-ERR unknown subcommand 'NOSUCH'. Try CLUSTER HELP.; \
             -ERR wrong number of arguments for 'cluster|keyslot' command; \
             -ERR wrong number of arguments for 'cluster' command",
        ),
    ]);
    // Valkey tells it without a cluster.
    check_ours(&[], &[("CLUSTER KEYSLOT a", ":15495")]);
}

#[test]
fn modules_are_not_loaded() {
    let refused = "-ERR MODULE command not allowed. If the enable-module-command option is set to \
                   \"local\", you can run it from a local connection, otherwise you need to set \
                   this option in the configuration file, and then restart the server.";
    check(&[("MODULE LOAD /x; MODULE LOADEX /x; MODULE UNLOAD x", &[refused; 3].join("; "))]);
}

#[test]
fn without_a_log_nobody_waits_for_it() {
    check_ours(
        &[],
        &[
            // Valkey's words.
            (
                "WAITAOF 0 0 1; WAITAOF 1 0 1; WAITAOF 2 0 1",
                "[:0 :0]; -ERR WAITAOF cannot be used when numlocal is set but appendonly is \
                 disabled.; -ERR value is out of range, value must between 0 and 1",
            ),
        ],
    );
}

#[test]
fn last_save_is_the_start() {
    crate::harness::each_backend(&[], |server| {
        let mut client = server.connect();
        let saved = client.ask("LASTSAVE").as_integer().unwrap();
        let info = client.ask_text("INFO persistence");
        assert!(info.contains(&format!("rdb_last_save_time:{saved}\r\n")), "{info}");
    });
}
