//! Groups and their consumers: XGROUP.

use kvasir_structures::stream::{Group as ConsumerGroup, Stream, StreamId};

use crate::command::{Command, Cx, Roam, Run};
use crate::commands::options::integer;
use crate::commands::stream::id;
use crate::effect::Effect;
use crate::error::{Error, quoted};
use crate::event::Class;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::stream_value;
use crate::value::Kind;

pub static COMMANDS: &[&Command] = &[&XGROUP];

const NEEDS_KEY: Error = Error::fixed(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use \
     the MKSTREAM option to create an empty stream automatically.",
);

const KEY_AND_GROUP: [Argument; 2] = [Argument::key("key", 0), Argument::string("groupname")];
const ID: Argument =
    Argument::one_of("id", &[Argument::string("id"), Argument::word("new_id", "$")]);
const ENTRIES_READ: Argument = Argument::integer("entries_read").token("ENTRIESREAD").optional();

static XGROUP: Command = Command {
    spec: Spec {
        name: "xgroup",
        summary: "Makes, changes and deletes groups of consumers.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "That of the subcommand.",
        arity: -2,
        ..Spec::BLANK
    },
    run: Run::Container(&[&CREATE, &CREATECONSUMER, &DELCONSUMER, &DESTROY, &HELP, &SETID]),
};

const fn key(flags: KeyFlags) -> KeySpec {
    KeySpec::range(KeyFlags::RW.union(flags), 2, 0, 1)
}

static CREATE: Command = Command {
    spec: Spec {
        name: "create",
        summary: "Makes a group.",
        since: "5.0.0",
        group: Group::Stream,
        arity: -5,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[key(KeyFlags::INSERT)],
        history: &[("7.0.0", "Takes `entries_read`.")],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("groupname"),
            ID,
            Argument::word("mkstream", "MKSTREAM").optional(),
            ENTRIES_READ,
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(create),
};

/// With each option once: who repeats one is refused for the number of words.
const CREATE_ARGS_MAX: usize = 8;

fn create(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let options = Options::parse(cx, true)?;
    let args = cx.args;
    let name = &args[3];
    let last_id = stream_value::peek(&mut cx.view, 0)?.map(|stream| stream.last_id());
    if last_id.is_none() && !options.makes_stream {
        return Err(NEEDS_KEY);
    }
    if args.len() > CREATE_ARGS_MAX {
        return Err(malformed(cx));
    }
    let group_id = group_id(&cx.args[4], last_id.unwrap_or_default())?;
    let group = ConsumerGroup::new(group_id, options.entries_read);
    if last_id.is_none() {
        let mut stream = Stream::new();
        stream.add_group(name, group);
        stream_value::create(&mut cx.view, 0, stream);
        cx.view.changed(0, Class::STREAM, "xgroup-create");
    } else {
        let added = stream_value::change(&mut cx.view, 0, |stream| stream.add_group(name, group));
        if added? == Some(false) {
            return Err(Error::fixed("BUSYGROUP Consumer Group name already exists"));
        }
        cx.view.tell(0, Class::STREAM, "xgroup-create");
    }
    cx.reply.ok();
    Ok(Effect::AsGiven)
}

/// The options of CREATE and SETID.
struct Options {
    makes_stream: bool,
    entries_read: Option<u64>,
}

impl Options {
    fn parse(cx: &Cx<'_, '_>, is_create: bool) -> Result<Options, Error> {
        let mut options = Options { makes_stream: false, entries_read: None };
        let mut words = cx.args.from(5).iter();
        while let Some(word) = words.next() {
            if is_create && word.eq_ignore_ascii_case(b"mkstream") {
                options.makes_stream = true;
            } else if word.eq_ignore_ascii_case(b"entriesread") && words.len() > 0 {
                options.entries_read = entries_read(words.next().unwrap_or_default())?;
            } else {
                return Err(malformed(cx));
            }
        }
        Ok(options)
    }
}

fn malformed(cx: &Cx<'_, '_>) -> Error {
    let before = "ERR unknown subcommand or wrong number of arguments for '";
    Error::quoting(before, &cx.args[1], "'. Try XGROUP HELP.")
}

/// A count; -1 is an unknown one.
fn entries_read(text: &[u8]) -> Result<Option<u64>, Error> {
    match integer(text)? {
        -1 => Ok(None),
        count => u64::try_from(count)
            .map(Some)
            .map_err(|_| Error::fixed("ERR value for ENTRIESREAD must be positive or -1")),
    }
}

/// Where a group begins: an id, or `$` for the end of the stream.
fn group_id(text: &[u8], last_id: StreamId) -> Result<StreamId, Error> {
    if text == b"$" { Ok(last_id) } else { id::id(text, 0) }
}

static SETID: Command = Command {
    spec: Spec {
        name: "setid",
        summary: "Sets up to where a group has read.",
        since: "5.0.0",
        group: Group::Stream,
        arity: -5,
        flags: Flags::WRITE,
        keys: &[key(KeyFlags::UPDATE)],
        history: &[("7.0.0", "Takes `entries_read`.")],
        arguments: &[Argument::key("key", 0), Argument::string("groupname"), ID, ENTRIES_READ],
        ..Spec::BLANK
    },
    run: Run::Keys(setid),
};

fn setid(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let options = Options::parse(cx, false)?;
    let args = cx.args;
    let text = &args[4];
    let set = change(cx, |stream, group| {
        let last_id = if text == b"$" { Ok(stream.last_id()) } else { id::bound(text, 0) };
        group.last_id = last_id?;
        group.entries_read = options.entries_read;
        Ok::<(), Error>(())
    });
    set??;
    cx.view.tell(0, Class::STREAM, "xgroup-setid");
    cx.reply.ok();
    Ok(Effect::AsGiven)
}

/// Lets `change` at the call's group, or says what is missing.
fn change<R>(
    cx: &mut Cx<'_, '_>,
    change: impl FnOnce(&Stream, &mut ConsumerGroup) -> R,
) -> Result<R, Error> {
    let args = cx.args;
    let name = &args[3];
    let changed = stream_value::change(&mut cx.view, 0, |stream| stream.with_group(name, change));
    changed?.ok_or(NEEDS_KEY)?.ok_or_else(|| no_group(cx.view.key(0), name))
}

/// What commands say that need a group.
pub fn no_group(key: &[u8], group: &[u8]) -> Error {
    let text = [
        b"NOGROUP No such consumer group '",
        quoted(group),
        b"' for key name '",
        quoted(key),
        b"'",
    ];
    Error::from_bytes(text.concat())
}

static DESTROY: Command = Command {
    spec: Spec {
        name: "destroy",
        summary: "Deletes a group.",
        since: "5.0.0",
        group: Group::Stream,
        complexity: "O(N) where N is the number of entries that are pending.",
        arity: 4,
        flags: Flags::WRITE,
        keys: &[key(KeyFlags::DELETE)],
        arguments: &KEY_AND_GROUP,
        ..Spec::BLANK
    },
    run: Run::Keys(destroy),
};

fn destroy(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let args = cx.args;
    let name = &args[3];
    let removed = stream_value::change(&mut cx.view, 0, |stream| stream.remove_group(name))?;
    let removed = removed.ok_or(NEEDS_KEY)?;
    let is_removed = removed.is_some();
    if let Some(group) = removed {
        stream_value::discard(&mut cx.view, group);
        cx.view.tell(0, Class::STREAM, "xgroup-destroy");
        // Who waits as its member has to hear of it.
        cx.view.note_ready(0, Kind::Stream);
    }
    cx.reply.integer(i64::from(is_removed));
    Ok(Effect::given_if(is_removed))
}

static CREATECONSUMER: Command = Command {
    spec: Spec {
        name: "createconsumer",
        summary: "Makes a consumer in a group.",
        since: "6.2.0",
        group: Group::Stream,
        arity: 5,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[key(KeyFlags::INSERT)],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("groupname"),
            Argument::string("consumername"),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(createconsumer),
};

fn createconsumer(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let (args, now_ms) = (cx.args, cx.view.env.now_ms);
    let name = &args[4];
    let is_new = change(cx, |_, group| {
        let is_new = group.consumer(name).is_none();
        if is_new {
            group.add_consumer(name, now_ms);
        }
        is_new
    })?;
    if is_new {
        cx.view.tell(0, Class::STREAM, "xgroup-createconsumer");
    }
    cx.reply.integer(i64::from(is_new));
    Ok(Effect::given_if(is_new))
}

static DELCONSUMER: Command = Command {
    spec: Spec {
        name: "delconsumer",
        summary: "Deletes a consumer and forgets what is pending for it.",
        since: "5.0.0",
        group: Group::Stream,
        arity: 5,
        flags: Flags::WRITE,
        keys: &[key(KeyFlags::DELETE)],
        arguments: &[
            Argument::key("key", 0),
            Argument::string("groupname"),
            Argument::string("consumername"),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(delconsumer),
};

fn delconsumer(cx: &mut Cx<'_, '_>) -> Result<Effect, Error> {
    let args = cx.args;
    let name = &args[4];
    let pending = change(cx, |_, group| group.remove_consumer(name))?;
    if pending.is_some() {
        cx.view.tell(0, Class::STREAM, "xgroup-delconsumer");
    }
    cx.reply.integer(pending.unwrap_or(0) as i64);
    Ok(Effect::given_if(pending.is_some()))
}

static HELP: Command = Command {
    spec: Spec {
        name: "help",
        summary: "Explains the subcommands.",
        since: "5.0.0",
        group: Group::Stream,
        arity: 2,
        flags: Flags::LOADING.union(Flags::STALE),
        ..Spec::BLANK
    },
    run: Run::Roam(help),
};

fn help(cx: &mut Roam<'_>) -> Result<Effect, Error> {
    const LINES: &[&str] = &[
        "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CREATE <key> <groupname> <id|$> [option]",
        "    Makes a group that reads from <id> on, or from the end. Options are:",
        "    * MKSTREAM",
        "      Makes an empty stream if the key is free.",
        "    * ENTRIESREAD entries_read",
        "      How many entries the group counts as read.",
        "CREATECONSUMER <key> <groupname> <consumer>",
        "    Makes a consumer in the group.",
        "DELCONSUMER <key> <groupname> <consumer>",
        "    Deletes a consumer and forgets what is pending for it.",
        "DESTROY <key> <groupname>",
        "    Deletes the group.",
        "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
        "    Sets up to where the group has read.",
        "HELP",
        "    Prints this help.",
    ];
    cx.reply.array(LINES.len());
    LINES.iter().for_each(|line| cx.reply.simple(line));
    Ok(Effect::None)
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, split};

    #[test]
    fn groups_come_and_go() {
        check(
            "XGROUP CREATE none g 0; XGROUP CREATE s g 0 MKSTREAM; XLEN s; EXISTS s; TYPE s; \
             XGROUP CREATE s g 0; XGROUP CREATE s g 0 MKSTREAM; XGROUP CREATE s h $; XINFO \
             GROUPS s; XGROUP DESTROY s g; XGROUP DESTROY s g; XGROUP DESTROY none g; XINFO \
             GROUPS s",
            "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may \
             want to use the MKSTREAM option to create an empty stream automatically.; +OK; :0; \
             :1; +stream; -BUSYGROUP Consumer Group name already exists; -BUSYGROUP Consumer \
             Group name already exists; +OK; [[$name $g $consumers :0 $pending :0 \
             $last-delivered-id $0-0 $entries-read _ $lag :0] [$name $h $consumers :0 $pending \
             :0 $last-delivered-id $0-0 $entries-read _ $lag :0]]; :1; :0; -ERR The XGROUP \
             subcommand requires the key to exist. Note that for CREATE you may want to use the \
             MKSTREAM option to create an empty stream automatically.; [[$name $h $consumers :0 \
             $pending :0 $last-delivered-id $0-0 $entries-read _ $lag :0]]",
        );
        check(
            "XADD s 5-1 a 1; XGROUP CREATE s b 5; XGROUP CREATE s a $ ENTRIESREAD 7; XGROUP \
             CREATE s c 9-9 entriesread -1; XINFO GROUPS s; XGROUP CREATE t g 9 MKSTREAM; XADD t \
             1-1 a 1; XINFO GROUPS t",
            "$5-1; +OK; +OK; +OK; [[$name $a $consumers :0 $pending :0 $last-delivered-id $5-1 \
             $entries-read :7 $lag :-6] [$name $b $consumers :0 $pending :0 $last-delivered-id \
             $5-0 $entries-read _ $lag :1] [$name $c $consumers :0 $pending :0 \
             $last-delivered-id $9-9 $entries-read _ $lag _]]; +OK; $1-1; [[$name $g $consumers \
             :0 $pending :0 $last-delivered-id $9-0 $entries-read _ $lag _]]",
        );
        check(
            "XGROUP CREATE s '' 0 MKSTREAM; XINFO GROUPS s; COPY s t; XGROUP DESTROY s ''; XINFO \
             GROUPS t",
            "+OK; [[$name $ $consumers :0 $pending :0 $last-delivered-id $0-0 $entries-read _ \
             $lag :0]]; :1; :1; [[$name $ $consumers :0 $pending :0 $last-delivered-id $0-0 \
             $entries-read _ $lag :0]]",
        );
    }

    #[test]
    fn positions_are_set() {
        check(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XGROUP SETID s \
             g 2; XINFO GROUPS s; XGROUP SETID s g $; XINFO GROUPS s; XGROUP SETID s g 3-1 \
             ENTRIESREAD 2; XINFO GROUPS s; XGROUP SETID s g 0 ENTRIESREAD -1; XINFO GROUPS s; \
             XGROUP SETID s g 1-1; XINFO GROUPS s",
            "$1-1; $2-1; $3-1; +OK; +OK; [[$name $g $consumers :0 $pending :0 $last-delivered-id \
             $2-0 $entries-read _ $lag _]]; +OK; [[$name $g $consumers :0 $pending :0 \
             $last-delivered-id $3-1 $entries-read _ $lag :0]]; +OK; [[$name $g $consumers :0 \
             $pending :0 $last-delivered-id $3-1 $entries-read :2 $lag :1]]; +OK; [[$name $g \
             $consumers :0 $pending :0 $last-delivered-id $0-0 $entries-read _ $lag :3]]; +OK; \
             [[$name $g $consumers :0 $pending :0 $last-delivered-id $1-1 $entries-read _ $lag \
             :2]]",
        );
    }

    #[test]
    fn consumers_come_and_go() {
        check(
            "XADD s 1-1 a 1; XADD s 2-1 b 2; XADD s 3-1 c 3; XGROUP CREATE s g 0; XGROUP \
             CREATECONSUMER s g c; XGROUP CREATECONSUMER s g c; XREADGROUP GROUP g c COUNT 2 \
             STREAMS s >; XREADGROUP GROUP g d STREAMS s >; XGROUP DELCONSUMER s g c; XGROUP \
             DELCONSUMER s g c; XPENDING s g; XGROUP CREATECONSUMER s g c; XREADGROUP GROUP g c \
             STREAMS s 0; XACK s g 1-1 3-1",
            "$1-1; $2-1; $3-1; +OK; :1; :0; [[$s [[$1-1 [$a $1]] [$2-1 [$b $2]]]]]; [[$s [[$3-1 \
             [$c $3]]]]]; :2; :0; [:1 $3-1 $3-1 [[$d $1]]]; :1; [[$s []]]; :1",
        );
    }

    #[test]
    fn an_option_twice_is_a_word_too_many() {
        check(
            "XGROUP CREATE s g 0 MKSTREAM MKSTREAM ENTRIESREAD 6; EXISTS s",
            "-ERR unknown subcommand or wrong number of arguments for 'CREATE'. Try XGROUP HELP.; \
             :0",
        );
    }

    #[test]
    fn what_is_wrong() {
        check(
            "XADD s 1-1 a 1; XGROUP CREATE s g x; XGROUP CREATE s g - ; XGROUP CREATE s g 0 X; \
             XGROUP CREATE s g 0 ENTRIESREAD; XGROUP CREATE s g 0 ENTRIESREAD -3; XGROUP CREATE \
             s g 0 ENTRIESREAD x; XGROUP CREATE none g x MKSTREAM; EXISTS none; XGROUP CREATE s \
             g; XGROUP CREATE s g 0; XGROUP SETID s g x; XGROUP SETID s g 0 MKSTREAM; XGROUP \
             SETID s g 0 ENTRIESREAD; XGROUP SETID s no 0; XGROUP SETID none g 0; XGROUP SETID s \
             g; XGROUP CREATECONSUMER s no c; XGROUP CREATECONSUMER none g c; XGROUP \
             CREATECONSUMER s g; XGROUP DELCONSUMER s no c; XGROUP DELCONSUMER none g c; XGROUP \
             DESTROY s; XGROUP DELCONSUMER s g",
            "$1-1; -ERR Invalid stream ID specified as stream command argument; -ERR Invalid \
             stream ID specified as stream command argument; -ERR unknown subcommand or wrong \
             number of arguments for 'CREATE'. Try XGROUP HELP.; -ERR unknown subcommand or \
             wrong number of arguments for 'CREATE'. Try XGROUP HELP.; -ERR value for \
             ENTRIESREAD must be positive or -1; -ERR value is not an integer or out of range; \
             -ERR Invalid stream ID specified as stream command argument; :0; -ERR wrong number \
             of arguments for 'xgroup|create' command; +OK; -ERR Invalid stream ID specified as \
             stream command argument; -ERR unknown subcommand or wrong number of arguments for \
             'SETID'. Try XGROUP HELP.; -ERR unknown subcommand or wrong number of arguments for \
             'SETID'. Try XGROUP HELP.; -NOGROUP No such consumer group 'no' for key name 's'; \
             -ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may \
             want to use the MKSTREAM option to create an empty stream automatically.; -ERR \
             wrong number of arguments for 'xgroup|setid' command; -NOGROUP No such consumer \
             group 'no' for key name 's'; -ERR The XGROUP subcommand requires the key to exist. \
             Note that for CREATE you may want to use the MKSTREAM option to create an empty \
             stream automatically.; -ERR wrong number of arguments for 'xgroup|createconsumer' \
             command; -NOGROUP No such consumer group 'no' for key name 's'; -ERR The XGROUP \
             subcommand requires the key to exist. Note that for CREATE you may want to use the \
             MKSTREAM option to create an empty stream automatically.; -ERR wrong number of \
             arguments for 'xgroup|destroy' command; -ERR wrong number of arguments for \
             'xgroup|delconsumer' command",
        );
        check(
            "SET k v; XGROUP CREATE k g 0; XGROUP CREATE k g 0 MKSTREAM; XGROUP SETID k g 0; \
             XGROUP DESTROY k g; XGROUP CREATECONSUMER k g c; XGROUP DELCONSUMER k g c",
            "+OK; -WRONGTYPE Operation against a key holding the wrong kind of value; -WRONGTYPE \
             Operation against a key holding the wrong kind of value; -WRONGTYPE Operation \
             against a key holding the wrong kind of value; -WRONGTYPE Operation against a key \
             holding the wrong kind of value; -WRONGTYPE Operation against a key holding the \
             wrong kind of value; -WRONGTYPE Operation against a key holding the wrong kind of \
             value",
        );
    }

    #[test]
    fn help_is_lines() {
        let mut bench = Bench::new(Protocol::Resp2);
        let (reply, _) = bench.call(split("XGROUP HELP")[0].as_args());
        assert!(reply.starts_with(b"*17\r\n+XGROUP <subcommand> "));
    }

    #[test]
    fn events_of_groups() {
        check_events(
            "XGROUP CREATE k g 0; XGROUP CREATE k g 0 MKSTREAM; XGROUP CREATE k g 0; XGROUP \
             CREATE k h 0; XGROUP SETID k g 0; XGROUP CREATECONSUMER k g c; XGROUP \
             CREATECONSUMER k g c; XGROUP DELCONSUMER k g c; XGROUP DELCONSUMER k g c; XGROUP \
             DESTROY k h; XGROUP DESTROY k h; XGROUP SETID k none 0; XGROUP SETID none g 0; \
             XGROUP CREATECONSUMER k none c",
            "; new k, xgroup-create k; ; (xgroup-create k); (xgroup-setid k); \
             (xgroup-createconsumer k); ; (xgroup-delconsumer k); ; (xgroup-destroy k); ; ; ; ",
        );
    }
}
