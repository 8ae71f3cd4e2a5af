//! Changing a string only if it is what the caller takes it for: DELIFEQ. SET's IFEQ stands with
//! SET.

use crate::command::{Command, Cx, Run};
use crate::effect::{Effect, call};
use crate::error::Error;
use crate::event::Class;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};

pub static COMMANDS: &[&Command] = &[&DELIFEQ];

static DELIFEQ: Command = Command {
    spec: Spec {
        name: "delifeq",
        summary: "Deletes a key if it holds the given string.",
        since: "9.0.0",
        group: Group::String,
        arity: 3,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RM.union(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0), Argument::string("value")],
        ..Spec::BLANK
    },
    run: Run::Keys(delifeq),
};

fn delifeq(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let equal = cx.view.peek_text(0)?.is_some_and(|text| text.equals(&cx.args[2]));
    if equal {
        cx.view.delete(0);
        cx.view.changed(0, Class::GENERIC, "del");
    }
    cx.reply.integer(i64::from(equal));
    // Redis does not know the command, and need not.
    let deletion = || Effect::Rewritten(vec![call(&[b"DEL", cx.view.key(0)])]);
    Ok(if equal { deletion() } else { Effect::None })
}

#[cfg(test)]
mod tests {
    use crate::testing::events::check_valkey_events;
    use crate::testing::{check_valkey, check_valkey3};

    #[test]
    fn delifeq() {
        check_valkey(
            "DELIFEQ k v; SET k v; DELIFEQ k w; DELIFEQ k v; EXISTS k; DELIFEQ k v",
            ":0; +OK; :0; :1; :0; :0",
        );
        check_valkey("SET k 12; DELIFEQ k 012; DELIFEQ k 12", "+OK; :0; :1");
        check_valkey("SET k v PXAT 1; DELIFEQ k v", "+OK; :0");
        check_valkey("SETRANGE k 20000 x; DELIFEQ k x; STRLEN k", ":20001; :0; :20001");
        check_valkey3("SET k ''; DELIFEQ k ''; DELIFEQ k ''", "+OK; :1; :0");
        check_valkey(
            "HSET h f v; DELIFEQ h v; DELIFEQ h; DELIFEQ h v w",
            ":1; -WRONGTYPE Operation against a key holding the wrong kind of value; \
             -ERR wrong number of arguments for 'delifeq' command; \
             -ERR wrong number of arguments for 'delifeq' command",
        );
    }

    #[test]
    fn events_of_comparing() {
        check_valkey_events(
            "SET k v; DELIFEQ k w; DELIFEQ k v; DELIFEQ k v",
            "new k, set k; ; del k; ",
        );
    }
}
