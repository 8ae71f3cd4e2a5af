//! DUMP: a value as bytes that RESTORE takes, here, in Redis and in Valkey.

use crate::command::{Command, Cx, Run};
use crate::effect::Effect;
use crate::error::Error;
use crate::serial;
use crate::spec::{Argument, Categories, Flags, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&DUMP];

static DUMP: Command = Command {
    spec: Spec {
        name: "dump",
        summary: "Returns a value in a form that RESTORE takes.",
        since: "2.6.0",
        complexity: "O(N) where N is the size of the value.",
        arity: 2,
        flags: Flags::READONLY,
        categories: Categories::KEYSPACE,
        keys: &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))],
        tips: &["nondeterministic_output"],
        arguments: &[Argument::key("key", 0)],
        ..Spec::BLANK
    },
    run: Run::Keys(dump),
};

fn dump(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    // As in Redis, no access to the value.
    let expiring_form = cx.view.env.expiring_form;
    match cx.view.look(0) {
        Some(record) => {
            let payload = serial::dump(record, expiring_form);
            cx.reply.bulk_shared(std::sync::Arc::new(payload));
        }
        None => cx.reply.null(),
    }
    Ok(Effect::None)
}

#[cfg(test)]
mod tests {
    use crate::testing::events::check_events;

    #[test]
    fn a_miss_is_an_event() {
        check_events("DUMP none; SET k v; DUMP k", "keymiss none; new k, set k; ");
    }
}
