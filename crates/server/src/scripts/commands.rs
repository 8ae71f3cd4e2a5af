//! What the command table tells about the calls in a script's source.

use kvasir_keyspace::command::{Command, Run};
use kvasir_keyspace::plan::each_key;
use kvasir_keyspace::spec::{Begin, Find, Flags, KeySpec};
use kvasir_lua::analysis::{Call, Commands, KeyPositions};
use kvasir_resp::args::ArgsBuf;
use kvasir_table::{Handler, Table};

/// Commands of the server that touch no key and leave the connection's database as it is.
const WITHOUT_KEYS: [&str; 5] = ["ping", "echo", "time", "publish", "spublish"];

pub struct TableCommands<'a>(pub &'a Table);

impl Commands for TableCommands<'_> {
    fn key_positions(&self, call: &Call) -> Option<KeyPositions> {
        let entry = self.0.find(call.args[0].as_deref()?)?;
        match entry.handler {
            Handler::Data(command) => positions(command, call),
            Handler::Server(_) => {
                WITHOUT_KEYS.contains(&entry.spec.name).then(KeyPositions::default)
            }
        }
    }

    fn is_read_only(&self, call: &Call) -> bool {
        let entry = call.args[0].as_deref().and_then(|name| self.0.find(name));
        entry.is_some_and(|entry| entry.spec.flags.contains(Flags::READONLY))
    }
}

/// `None` unless the command keeps to keys that its specification finds by the number of arguments,
/// and by counts that are written in the source.
fn positions(command: &Command, call: &Call) -> Option<KeyPositions> {
    let spec = &command.spec;
    let is_known = |key: &KeySpec| match (key.begin, key.find) {
        (Begin::Index(_), Find::Range { .. }) => true,
        (Begin::Index(begin), Find::Count { count, .. }) => {
            matches!(call.args.get((begin + count) as usize), Some(Some(_)))
        }
        _ => false,
    };
    let is_whole = call.is_open || spec.accepts_count(call.args.len());
    if !matches!(command.run, Run::Keys(_)) || !is_whole || !spec.keys.iter().all(is_known) {
        return None;
    }
    let args = call.args.iter().map(|arg| arg.as_deref().unwrap_or_default());
    let args: ArgsBuf = args.collect();
    let mut found = KeyPositions { positions: Vec::new(), in_rest: call.is_open };
    each_key(spec, args.as_args(), |arg, _| found.positions.push(arg)).ok()?;
    if call.is_open {
        // Where the keys end depends on what follows: only a fixed first key is sure.
        let is_fixed = |key: &KeySpec| {
            matches!((key.begin, key.find), (Begin::Index(_), Find::Range { last: 0, .. }))
        };
        found.in_rest = !spec.keys.iter().all(is_fixed);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use kvasir_lua::analysis::{Touches, analyse, analyse_library};

    use super::*;

    fn touches(source: &str) -> Touches {
        analyse(source.as_bytes(), &TableCommands(&crate::commands::table())).touches
    }

    #[test]
    fn scripts_that_keep_to_their_keys() {
        for source in [
            "return redis.call('get', KEYS[1])",
            "local k = KEYS[1] redis.call('set', k, ARGV[1], 'PX', ARGV[2]) return 1",
            "return redis.call('zunionstore', KEYS[1], 2, KEYS[2], KEYS[3])",
            "return redis.call('del', KEYS[1], KEYS[2])",
            "redis.call('rpush', KEYS[1], unpack(ARGV))",
            "return redis.call('time')[1] + redis.call('incr', KEYS[1])",
            "redis.call('publish', 'c', 'm') return redis.call('hget', KEYS[1], 'f')",
        ] {
            assert_eq!(touches(source), Touches::Declared, "{source}");
        }
    }

    #[test]
    fn scripts_that_may_touch_anything() {
        for source in [
            "return redis.call('get', 'k')",
            "return redis.call('get', ARGV[1])",
            "redis.call('select', 1) return redis.call('get', KEYS[1])",
            "return redis.call('del', unpack(ARGV))",
            "return redis.call('zunionstore', KEYS[1], ARGV[1], KEYS[2])",
            "return redis.call('keys', '*')",
            "return redis.call('dbsize')",
            "return redis.call('flushall')",
            "return redis.call('sort', KEYS[1], 'by', 'w_*')",
            "return redis.call('copy', KEYS[1], KEYS[2], 'db', 1)",
            "return redis.call('move', KEYS[1], 1)",
            "return redis.call('xread', 'streams', KEYS[1], '0')",
            "return redis.call('georadius', KEYS[1], 0, 0, 1, 'm', 'store', 'k')",
            "return redis.call('debug', 'object', 'k')",
            "return redis.call('memory', 'usage', 'k')",
        ] {
            assert_eq!(touches(source), Touches::Any, "{source}");
        }
    }

    #[test]
    fn libraries_that_keep_to_their_keys() {
        let touches = |code: &str| {
            analyse_library(code.as_bytes(), &TableCommands(&crate::commands::table()))
        };
        let counter = "#!lua name=l\nredis.register_function('f', function(keys, args) \
             return redis.call('incrby', keys[1], args[1]) end)";
        assert_eq!(touches(counter), Touches::Declared);
        assert_eq!(touches(&counter.replace("keys[1]", "args[1]")), Touches::Any);
    }
}
