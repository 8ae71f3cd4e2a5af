//! What stands in `-o`: words with commas between them, some with a value behind `=`.

use super::{Ignored, Wish};

const QUEUES: &str = "there are no queues of an LRU";
const SLABS: &str = "there are no slab classes";
const TABLE: &str = "the table of keys grows by itself";
const LOGS: &str = "there is nothing to watch";

/// Words without effect, and why.
static IGNORED: &[(&str, &str)] = &[
    ("maxconns_fast", "who comes when maxclients are there is refused at once"),
    ("hashpower", TABLE),
    ("hash_algorithm", TABLE),
    ("no_hashexpand", TABLE),
    ("tail_repair_time", QUEUES),
    ("lru_crawler", QUEUES),
    ("no_lru_crawler", QUEUES),
    ("lru_crawler_sleep", QUEUES),
    ("lru_crawler_tocrawl", QUEUES),
    ("lru_maintainer", QUEUES),
    ("no_lru_maintainer", QUEUES),
    ("hot_lru_pct", QUEUES),
    ("warm_lru_pct", QUEUES),
    ("hot_max_factor", QUEUES),
    ("warm_max_factor", QUEUES),
    ("temporary_ttl", QUEUES),
    ("slab_reassign", SLABS),
    ("no_slab_reassign", SLABS),
    ("slab_automove", SLABS),
    ("no_slab_automove", SLABS),
    ("slab_automove_ratio", SLABS),
    ("slab_automove_window", SLABS),
    ("slab_automove_freeratio", SLABS),
    ("slab_chunk_max", SLABS),
    ("track_sizes", SLABS),
    ("read_buf_mem_limit", "see client-query-buffer-limit"),
    ("watcher_logbuf_size", LOGS),
    ("worker_logbuf_size", LOGS),
    ("modern", "there is one kind"),
    ("no_modern", "there is one kind"),
    ("relaxed_privileges", "no system calls are given up"),
    ("drop_privileges", "no system calls are given up"),
    ("no_drop_privileges", "no system calls are given up"),
    ("resp_obj_mem_limit", "see client-output-buffer-limit"),
    ("inline_ascii_response", "there is one kind"),
    ("no_inline_ascii_resp", "there is one kind"),
    ("ssl_keyformat", "a key is PEM"),
    ("ssl_wbuf_size", "buffers have no fixed size"),
    ("ssl_kernel_tls", "TLS stays in the server"),
];

pub fn obey(wish: &mut Wish, list: &str) -> Result<(), String> {
    for word in list.split(',').filter(|word| !word.is_empty()) {
        let (name, value) = word.split_once('=').map_or((word, ""), |(name, value)| (name, value));
        if let Some((name, why)) = IGNORED.iter().find(|(known, _)| *known == name) {
            wish.ignored.push(Ignored { name, why });
            continue;
        }
        match name {
            "idle_timeout" => wish.put("timeout", value),
            "ssl_chain_cert" => wish.put("tls-cert-file", value),
            "ssl_key" => wish.put("tls-key-file", value),
            "ssl_ca_cert" => wish.put("tls-ca-cert-file", value),
            "ssl_ciphers" => wish.put("tls-ciphers", value),
            "ssl_session_cache" => wish.put("tls-session-caching", "yes"),
            "ssl_verify_mode" => wish.put("tls-auth-clients", verify_mode(value)?),
            "ssl_min_version" => wish.put("tls-protocols", versions(value)?),
            _ if name.starts_with("ext_") => {
                return Err(format!("-o {name}: there is no external storage"));
            }
            _ => return Err(format!("Illegal suboption \"{word}\"")),
        }
    }
    Ok(())
}

fn verify_mode(value: &str) -> Result<&'static str, String> {
    match value {
        "0" => Ok("no"),
        "1" => Ok("optional"),
        "2" | "3" => Ok("yes"),
        _ => Err("Invalid ssl_verify_mode. Use help to see valid options.".into()),
    }
}

fn versions(value: &str) -> Result<&'static str, String> {
    match value {
        "0" | "1" | "2" | "tlsv1.0" | "tlsv1.1" | "tlsv1.2" => Ok(""),
        "3" | "tlsv1.3" => Ok("TLSv1.3"),
        _ => Err("Invalid ssl_min_version. Use help to see valid options.".into()),
    }
}
