//! What a server starts with that has memcached's command line, and what it does not start with.

use super::*;
use crate::arguments::{self, Invocation};
use crate::load::{self, Loaded};
use kvasir_keyspace::access::Policy;

/// What a server would start with.
fn load_of(line: &str) -> Loaded {
    let words = format!("memcached {line}");
    let words = words.split(" ").filter(|word| !word.is_empty());
    let words: Vec<OsString> = words.map(Into::into).collect();
    match arguments::parse(&words) {
        Invocation::Serve(sources) => load::load(&sources).expect("it can be loaded"),
        other => panic!("{line}: {other:?}"),
    }
}

fn refusal_of(line: &str) -> String {
    let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
    translate(&words).expect_err(line)
}

#[test]
fn without_options_it_is_as_memcached_is() {
    let config = load_of("").config;
    assert!(config.serves_only_memcached() && config.persistence.save.is_empty());
    assert_eq!((config.memcached.port, config.maxclients), (PORT, CONNECTIONS));
    assert_eq!(config.memory.maxmemory, MEGABYTES << 20);
    assert_eq!(config.memory.maxmemory_policy, Policy::AllKeysLru);
    assert_eq!(config.memcached.item_size_max, ITEM_SIZE);
}

#[test]
fn options_become_directives() {
    let Loaded { config, ignored, .. } = load_of(
        "-m 100 -vp11311 -c 77 -l 127.0.0.1,[::1] --threads=3 -FAX -I 2m -D / -M \
         -o idle_timeout=9,no_modern -U 0 -u nobody -f 1.5 -- --maxmemory 5mb --save 1 1",
    );
    let memcached = &config.memcached;
    assert_eq!((memcached.port, config.maxclients, config.timeout), (11311, 77, 9));
    assert_eq!(config.bind, ["127.0.0.1", "::1"]);
    assert_eq!((memcached.item_size_max, memcached.delimiter()), (2 << 20, b'/'));
    assert!(!memcached.flush_all && memcached.shutdown && !memcached.dump);
    assert_eq!(config.memory.maxmemory, 5 << 20, "what is behind -- wins");
    assert_eq!(config.memory.maxmemory_policy, Policy::NoEviction);
    let names: Vec<&str> = ignored.iter().map(|ignored| ignored.name).collect();
    assert_eq!(names, ["no_modern", "-f"]);
    assert_eq!(config.run_as_user, b"nobody");
    assert_eq!(config.persistence.dbfilename.as_os_str(), "memcached.rdb");
    let socket = load_of("-s /tmp/x -a 0770 -l host:12").config.memcached;
    assert_eq!((socket.port, socket.unixsocketperm.0), (0, 0o770));
    assert_eq!(load_of("-l host:12").config.memcached.port, 12);
}

#[test]
fn what_is_wrong_or_not_there_stops_the_start() {
    for (line, text) in [
        ("-c 0", "Maximum connections must be greater than 0"),
        ("-t 0", "Number of threads must be greater than 0"),
        ("-I 1000", "Item max size cannot be less than 1024 bytes."),
        ("-I 256m", "Cannot set item size limit higher than 1/2 of memory max."),
        ("-I 2g", "Cannot set item size limit higher than a gigabyte."),
        ("-m x", "Invalid memory limit"),
        ("-y", "invalid option -- 'y'"),
        ("--what=3", "unrecognized option '--what'"),
        ("-p", "option requires an argument -- 'p'"),
        ("-S", "-S: SASL is not spoken, see -Y"),
        ("-B binary", "The binary protocol is not spoken: -B ascii"),
        ("-o ext_path=/x", "-o ext_path: there is no external storage"),
        ("-o what", "Illegal suboption \"what\""),
        ("-l a:1,b:2", "-l b:2: all addresses have the same port"),
    ] {
        assert_eq!(refusal_of(line), text, "{line}");
    }
}

#[test]
fn a_file_of_users() {
    let expected = "user default off\nuser a on >b:c ~* &* +@all\n";
    assert_eq!(users("a:b:c\n\n").as_deref(), Some(expected));
    assert!(users("a").is_none() && users(":b").is_none() && users("a b:c").is_none());
}
