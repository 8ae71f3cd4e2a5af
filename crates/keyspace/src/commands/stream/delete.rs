//! Deleting entries, and setting what a stream remembers: XDEL, XSETID.

use kvasir_structures::stream::{Stream, StreamId};

use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::commands::stream::id;
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::stream_value;

pub static COMMANDS: &[&Command] = &[&XDEL, &XSETID];

static XDEL: Command = Command {
    spec: Spec {
        name: "xdel",
        summary: "Deletes entries of a stream; returns how many were there.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(1) for each entry, however long the stream is.",
        arity: -3,
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0), Argument::string("id").multiple()],
        ..Spec::BLANK
    },
    run: Run::Keys(xdel),
};

fn xdel(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let ids = cx.args.from(2);
    // A wrong id anywhere leaves the stream as it is; a key that is free needs no ids.
    if stream_value::peek(&mut cx.view, 0)?.is_none() {
        cx.reply.integer(0);
        return Ok(Effect::None);
    }
    let ids: Vec<StreamId> = ids.iter().map(|text| id::id(text, 0)).collect::<Result<_, _>>()?;
    let deleted = stream_value::change(&mut cx.view, 0, |stream| {
        ids.iter().filter(|id| stream.delete(**id)).count()
    });
    let deleted = deleted?.unwrap_or(0);
    if deleted > 0 {
        cx.view.changed(0, Class::STREAM, "xdel");
    }
    cx.reply.integer(deleted as i64);
    Ok(Effect::given_if(deleted > 0))
}

static XSETID: Command = Command {
    spec: Spec {
        name: "xsetid",
        summary: "Sets the last id of a stream, as replication does.",
        since: "5.0.0",
        group: Group::Stream,
        arity: -3,
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RW.union(KeyFlags::UPDATE))],
        history: &[("7.0.0", "Takes `entries_added` and `max_deleted_entry_id`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("last-id"),
            Argument::integer("entries_added").token("ENTRIESADDED").since("7.0.0").optional(),
            Argument::string("max_deleted_entry_id")
                .token("MAXDELETEDID")
                .since("7.0.0")
                .optional(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(xsetid),
};

/// What XSETID is to set.
struct Settings {
    last_id: StreamId,
    entries_added: Option<u64>,
    max_deleted_id: Option<StreamId>,
}

fn xsetid(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let settings = settings(cx)?;
    let set = stream_value::change(&mut cx.view, 0, |stream| set_id(stream, &settings))?;
    set.ok_or(Error::NO_KEY)??;
    cx.view.tell(0, Class::STREAM, "xsetid");
    cx.reply.ok();
    Ok(Effect::AsGiven)
}

fn settings(cx: &Cx<'_, '_>) -> Result<Settings, Error> {
    let last_id = id::id(&cx.args[2], 0)?;
    let mut settings = Settings { last_id, entries_added: None, max_deleted_id: None };
    let mut options = cx.args.from(3).iter();
    while let Some(word) = options.next() {
        let value = options.next().ok_or(Error::SYNTAX)?;
        if word.eq_ignore_ascii_case(b"entriesadded") {
            let negative = Error::fixed("ERR entries_added must be positive");
            let count = u64::try_from(integer(value)?).map_err(|_| negative)?;
            settings.entries_added = Some(count);
        } else if word.eq_ignore_ascii_case(b"maxdeletedid") {
            settings.max_deleted_id = Some(id::id(value, 0)?);
            if last_id < settings.max_deleted_id.unwrap_or_default() {
                return Err(Error::fixed(
                    "ERR The ID specified in XSETID is smaller than the provided \
                     max_deleted_entry_id",
                ));
            }
        } else {
            return Err(Error::SYNTAX);
        }
    }
    Ok(settings)
}

fn set_id(stream: &mut Stream, settings: &Settings) -> Result<(), Error> {
    if settings.last_id < stream.max_deleted_id() {
        return Err(Error::fixed(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        ));
    }
    if let Some(last) = stream.last() {
        if settings.last_id < last.id {
            return Err(Error::fixed(
                "ERR The ID specified in XSETID is smaller than the target stream top item",
            ));
        }
        if settings.entries_added.is_some_and(|added| added < stream.len()) {
            return Err(Error::fixed(
                "ERR The entries_added specified in XSETID is smaller than the target stream \
                 length",
            ));
        }
    }
    stream.set_last_id(settings.last_id);
    settings.entries_added.into_iter().for_each(|count| stream.set_entries_added(count));
    let given = settings.max_deleted_id.filter(|id| *id != StreamId::MIN);
    given.into_iter().for_each(|id| stream.set_max_deleted_id(id));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::events::check_events;
    use crate::testing::{check, check_valkey};

    const INVALID: &str = "-ERR Invalid stream ID specified as stream command argument";
    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

    #[test]
    fn xdel_counts_what_was_there() {
        check(
            "XADD s 1-1 a 1; XADD s 2-1 a 2; XADD s 3-1 a 3; XDEL s 2-1 2-1 9 1; XDEL s 1-1 3-1; \
             XLEN s; EXISTS s; XADD s 3-1 a 1; XADD s 4 a 1",
            "$1-1; $2-1; $3-1; :1; :2; :0; :1; -ERR The ID specified in XADD is equal or smaller \
             than the target stream top item; $4-0",
        );
        check(
            "XDEL none 1; XADD s 1-1 a 1; XDEL s 1-1 x; XDEL none x; XLEN s; XDEL s - +",
            &format!(":0; $1-1; {INVALID}; :0; :1; {INVALID}"),
        );
    }

    #[test]
    fn xsetid_sets() {
        check(
            "XADD s 1-1 a 1; XSETID s 5-5; XADD s 5-5 a 1; XADD s 5-* a 1; \
             XSETID s 9 ENTRIESADDED 7 MAXDELETEDID 8-1; XADD s 9-* a 1; \
             XSETID s 9-1 maxdeletedid 0-0 entriesadded 3; XSETID s 9-0",
            "$1-1; +OK; -ERR The ID specified in XADD is equal or smaller than the target stream \
             top item; $5-6; +OK; $9-1; +OK; -ERR The ID specified in XSETID is smaller than the \
             target stream top item",
        );
        check_valkey(
            "XADD s 1-1 a 1; XSETID s 9 MAXDELETEDID 8-1; XSETID s 8-0",
            "$1-1; +OK; -ERR The ID specified in XSETID is smaller than current \
             max_deleted_entry_id",
        );
    }

    #[test]
    fn what_is_wrong() {
        check(
            "SET k v; XDEL k 1; XSETID k 1; XSETID none 1; XADD s 5 a 1; XSETID s 4; XSETID s x; \
             XSETID s 6 ENTRIESADDED -1; XSETID s 6 ENTRIESADDED x; XSETID s 6 ENTRIESADDED 0; \
             XSETID s 6 MAXDELETEDID 7; XSETID s 6 MAXDELETEDID x; XSETID s 6 x 1; \
             XSETID s 6 ENTRIESADDED; XSETID s -; XDEL s",
            &format!(
                "+OK; {WRONG_TYPE}; {WRONG_TYPE}; -ERR no such key; $5-0; \
                 -ERR The ID specified in XSETID is smaller than the target stream top item; \
                 {INVALID}; -ERR entries_added must be positive; \
                 -ERR value is not an integer or out of range; \
                 -ERR The entries_added specified in XSETID is smaller than the target stream \
                 length; \
                 -ERR The ID specified in XSETID is smaller than the provided \
                 max_deleted_entry_id; {INVALID}; -ERR syntax error; -ERR syntax error; \
                 {INVALID}; -ERR wrong number of arguments for 'xdel' command"
            ),
        );
    }

    #[test]
    fn events_of_deleting() {
        check_events(
            "XADD s 1-1 f v; XDEL s 1-1; XDEL s 1-1; XDEL none 1-1; XSETID s 10-1; XSETID s \
             10-1; XSETID none 1-1; XSETID s 1-1",
            "new s, xadd s; xdel s; ; ; (xsetid s); (xsetid s); ; (xsetid s)",
        );
    }
}
