//! Integers of any width in strings: BITFIELD, BITFIELD_RO.

use kvasir_resp::args::Args;
use kvasir_resp::number::parse_integer;
use kvasir_structures::bits;

use super::bit::{check_offset, will_become_raw};
use super::integer::{Overflow, Type};
use crate::command::{Command, Cx, Run};
use crate::commands::options::integer;
use crate::effect::Effect;
use crate::error::Error;
use crate::event::Class;
use crate::spec::{Argument, Flags, Group, KeyFlags, KeySpec, Spec};
use crate::text_value::{edit, find_or_create};
use crate::value::Text;
use crate::view::Env;

pub static COMMANDS: &[&Command] = &[&BITFIELD, &BITFIELD_RO];

const PLACE: &[Argument] = &[Argument::string("encoding"), Argument::integer("offset")];

static BITFIELD: Command = Command {
    spec: Spec {
        name: "bitfield",
        summary: "Reads and changes integers of 1 to 64 bits anywhere in a string.",
        since: "3.2.0",
        group: Group::Bitmap,
        complexity: "O(1) for each operation.",
        arity: -2,
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec {
            notes: Some("Reads the key, and changes it if there is a SET or an INCRBY."),
            ..KeySpec::first(
                KeyFlags::RW
                    .union(KeyFlags::ACCESS)
                    .union(KeyFlags::UPDATE)
                    .union(KeyFlags::VARIABLE_FLAGS),
            )
        }],
        arguments: &[
            Argument::key("key", 0),
            Argument::one_of(
                "operation",
                &[
                    Argument::block("encoding_offset", PLACE).token("GET"),
                    Argument::block("write", WRITE),
                ],
            )
            .optional()
            .multiple(),
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| bitfield(cx, true)),
};

const WRITE: &[Argument] = &[
    Argument::one_of(
        "wrap_sat_fail",
        &[
            Argument::word("wrap", "WRAP"),
            Argument::word("sat", "SAT"),
            Argument::word("fail", "FAIL"),
        ],
    )
    .token("OVERFLOW")
    .optional(),
    Argument::one_of(
        "write_operation",
        &[
            Argument::block(
                "encoding_offset_value",
                &[
                    Argument::string("encoding"),
                    Argument::integer("offset"),
                    Argument::integer("value"),
                ],
            )
            .token("SET"),
            Argument::block(
                "encoding_offset_increment",
                &[
                    Argument::string("encoding"),
                    Argument::integer("offset"),
                    Argument::integer("increment"),
                ],
            )
            .token("INCRBY"),
        ],
    ),
];

static BITFIELD_RO: Command = Command {
    spec: Spec {
        name: "bitfield_ro",
        summary: "Reads integers of 1 to 64 bits anywhere in a string.",
        since: "6.0.0",
        group: Group::Bitmap,
        complexity: "O(1) for each operation.",
        arity: -2,
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::first(KeyFlags::RO.union(KeyFlags::ACCESS))],
        arguments: &[
            Argument::key("key", 0),
            Argument {
                multiple_token: true,
                ..Argument::block("encoding_offset", PLACE).token("GET").optional().multiple()
            },
        ],
        ..Spec::BLANK
    },
    run: Run::Keys(|cx| bitfield(cx, false)),
};

/// One operation, on `integer` at bit `at`.
struct Operation {
    action: Action,
    integer: Type,
    at: u64,
}

enum Action {
    Get,
    Set(i64, Overflow),
    Add(i64, Overflow),
}

impl Operation {
    fn writes(&self) -> bool {
        !matches!(self.action, Action::Get)
    }

    /// The number of bytes that a string needs to have this integer.
    fn end(&self) -> usize {
        (self.at + u64::from(self.integer.width)).div_ceil(8) as usize
    }

    fn read(&self, bytes: &[u8]) -> i64 {
        self.integer.decode(bits::field(bytes, self.at, self.integer.width))
    }

    /// Changes the string; returns the reply, null if the result does not fit and that is to fail.
    fn run(&self, bytes: &mut [u8]) -> Option<i64> {
        let old = self.read(bytes);
        let (new, answers_new) = match self.action {
            Action::Get => return Some(old),
            Action::Set(value, overflow) => (self.integer.assign(value, overflow)?, false),
            Action::Add(change, overflow) => (self.integer.add(old, change, overflow)?, true),
        };
        bits::set_field(bytes, self.at, self.integer.width, new as u64);
        Some(if answers_new { new } else { old })
    }
}

fn bitfield(cx: &mut Cx<'_, '_>, may_write: bool) -> Result<Effect, Error> {
    let operations = parse(cx.args.from(2), cx.view.env)?;
    let Some(end) = operations.iter().filter(|one| one.writes()).map(Operation::end).max() else {
        return get_all(cx, &operations);
    };
    if !may_write {
        return Err(Error::fixed("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    let old_len = cx.view.peek_text(0)?.map(Text::len);
    let len = old_len.unwrap_or(0).max(end);
    let mut found = find_or_create(&mut cx.view, 0, old_len.is_some());
    let (mut changed, becomes_raw) = (old_len != Some(len), will_become_raw(&found));
    cx.reply.array(operations.len());
    edit(&mut found, len, |bytes| {
        for operation in &operations {
            let old = operation.read(bytes);
            match operation.run(bytes) {
                Some(number) => cx.reply.integer(number),
                None => cx.reply.null(),
            }
            changed |= operation.read(bytes) != old;
        }
    });
    if changed {
        cx.view.changed(0, Class::STRING, "setbit");
    }
    Ok(Effect::given_if(changed || becomes_raw))
}

fn get_all(cx: &mut Cx<'_, '_>, operations: &[Operation]) -> Result<Effect, Error> {
    let bytes = cx.view.text(0)?.map(Text::bytes).unwrap_or_default();
    cx.reply.array(operations.len());
    operations.iter().for_each(|operation| cx.reply.integer(operation.read(&bytes)));
    Ok(Effect::None)
}

fn parse(mut words: Args<'_>, env: &Env) -> Result<Vec<Operation>, Error> {
    let (mut operations, mut overflow) = (Vec::new(), Overflow::Wrap);
    while let Some(word) = words.get(0) {
        let is = |name: &[u8], operands| word.eq_ignore_ascii_case(name) && words.len() > operands;
        if is(b"overflow", 1) {
            let unknown = Error::fixed("ERR Invalid OVERFLOW type specified");
            overflow = Overflow::from_word(&words[1]).ok_or(unknown)?;
            words = words.from(2);
            continue;
        }
        let (is_get, is_set) = (is(b"get", 2), is(b"set", 3));
        if !is_get && !is_set && !is(b"incrby", 3) {
            return Err(Error::SYNTAX);
        }
        let integer_type = Type::parse(&words[1])?;
        let at = offset(&words[2], integer_type, env)?;
        let action = match is_get {
            true => Action::Get,
            false if is_set => Action::Set(integer(&words[3])?, overflow),
            false => Action::Add(integer(&words[3])?, overflow),
        };
        words = words.from(if is_get { 3 } else { 4 });
        operations.push(Operation { action, integer: integer_type, at });
    }
    Ok(operations)
}

/// `5` is a bit, `#5` the sixth integer of this type.
fn offset(text: &[u8], integer: Type, env: &Env) -> Result<u64, Error> {
    let at = match text.strip_prefix(b"#") {
        None => parse_integer(text),
        Some(index) => {
            // Beyond its range it wraps, as in Redis.
            parse_integer(index).map(|index| index.wrapping_mul(i64::from(integer.width)))
        }
    };
    check_offset(at, env)
}

impl Type {
    /// `i16`, `u8`: signed up to 64 bits, unsigned up to 63, since a reply is signed.
    fn parse(text: &[u8]) -> Result<Type, Error> {
        let (is_signed, digits) = match text {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return Err(INVALID_TYPE),
        };
        let width_max = if is_signed { 64 } else { 63 };
        match parse_integer(digits) {
            Some(width) if (1..=width_max).contains(&width) => {
                Ok(Type { is_signed, width: width as u32 })
            }
            _ => Err(INVALID_TYPE),
        }
    }
}

const INVALID_TYPE: Error = Error::fixed(
    "ERR Invalid bitfield type. Use something like i16 u8. \
     Note that u64 is not supported but i64 is.",
);

impl Overflow {
    fn from_word(word: &[u8]) -> Option<Overflow> {
        let words: [(&[u8], Overflow); 3] =
            [(b"wrap", Overflow::Wrap), (b"sat", Overflow::Saturate), (b"fail", Overflow::Fail)];
        words
            .iter()
            .find(|(name, _)| word.eq_ignore_ascii_case(name))
            .map(|(_, overflow)| *overflow)
    }
}

#[cfg(test)]
mod tests {
    use kvasir_resp::reply::Protocol;

    use crate::effect::Effect;
    use crate::testing::events::check_events;
    use crate::testing::{Bench, check, check3, split};

    #[test]
    fn get_and_set() {
        check(
            "BITFIELD k set u8 #1 255 get u8 #1 get i8 #1 get u4 12 GET u1 7; GET k",
            "[:0 :255 :-1 :15 :0]; $\\x00\\xff",
        );
        check(
            "BITFIELD no get i64 5 get u63 1; EXISTS no; BITFIELD no; EXISTS no",
            "[:0 :0]; :0; []; :0",
        );
        check(
            "SET k 5; BITFIELD k get u8 0 get u16 0; OBJECT ENCODING k; BITFIELD_RO k get u8 #0; \
             BITFIELD k set u8 0 53; OBJECT ENCODING k; BITFIELD_RO k overflow sat get i3 1; \
             BITFIELD_RO k",
            "+OK; [:53 :13568]; $int; [:53]; [:53]; $raw; [:3]; []",
        );
        check(
            "BITFIELD k set i64 3 -2 get i64 3 get u8 0 get u3 0; STRLEN k; EXPIRE k 100; \
             BITFIELD k set u1 0 1; TTL k",
            "[:0 :-2 :31 :0]; :9; :1; [:0]; :100",
        );
        check(
            "BITFIELD k set u8 200000 7; BITFIELD k get u8 200000 get u8 300000; STRLEN k",
            "[:0]; [:7 :0]; :25001",
        );
    }

    #[test]
    fn overflows() {
        check(
            "BITFIELD k set u8 0 250 incrby u8 0 10 overflow sat incrby u8 0 1000 \
             overflow fail incrby u8 0 1 overflow wrap set i4 8 9 get i4 8",
            "[:0 :4 :255 _ :0 :-7]",
        );
        check3("BITFIELD k overflow fail set u2 0 4 incrby i2 0 -3; STRLEN k", "[_ _]; :1");
        check(
            "BITFIELD k set u8 0 -1; BITFIELD k overflow sat set u8 0 -1; \
             BITFIELD k overflow sat set i8 0 -1000 get i8 0; \
             BITFIELD k overflow sat set i8 0 1000 get i8 0",
            "[:0]; [:255]; [:-1 :-128]; [:-128 :127]",
        );
        check(
            "BITFIELD k incrby u8 0 -1 overflow sat incrby u8 0 -1000 incrby i8 0 -1000 \
             overflow wrap incrby i8 0 -1",
            "[:255 :0 :-128 :127]",
        );
        check(
            "BITFIELD k set i64 0 -9223372036854775808 incrby i64 0 -1 overflow sat incrby i64 0 1 \
             overflow fail incrby i64 0 1",
            "[:0 :9223372036854775807 :9223372036854775807 _]",
        );
        check(
            "BITFIELD k set u63 7 9223372036854775807 incrby u63 7 1 overflow sat incrby u63 7 -1 \
             incrby u63 7 9223372036854775807 incrby u63 7 1 overflow fail set u63 7 -1",
            "[:0 :0 :0 :9223372036854775807 :9223372036854775807 _]",
        );
        check(
            "BITFIELD k set i1 0 1 get i1 0 get u1 0 incrby i1 0 1 overflow fail incrby i1 0 1",
            "[:0 :-1 :1 :0 _]",
        );
    }

    #[test]
    fn bitfield_refuses() {
        let offset = "-ERR bit offset is not an integer or out of range";
        check(
            "BITFIELD k get; BITFIELD k get u8; BITFIELD k set u8 0; BITFIELD k overflow; \
             BITFIELD k foo; BITFIELD k get u8 0 x",
            &["-ERR syntax error"; 6].join("; "),
        );
        for name in ["u64", "i65", "u0", "I8", "u", "x8", "u8x", "u08"] {
            check(
                &format!("BITFIELD k get {name} 0"),
                "-ERR Invalid bitfield type. Use something like i16 u8. \
                 Note that u64 is not supported but i64 is.",
            );
        }
        for at in ["-1", "x", "#4294967295", "4294967296", "#9223372036854775807", "#", "#-1"] {
            check(
                &format!("BITFIELD k get u8 {at}; BITFIELD k set u8 {at} x"),
                &format!("{offset}; {offset}"),
            );
        }
        check(
            "BITFIELD k set u8 0 x; BITFIELD k overflow x; BITFIELD_RO k set u8 0 1; \
             BITFIELD_RO k set u8 0 x; BITFIELD_RO k incrby u8 0 1 get; BITFIELD; EXISTS k",
            "-ERR value is not an integer or out of range; -ERR Invalid OVERFLOW type specified; \
             -ERR BITFIELD_RO only supports the GET subcommand; \
             -ERR value is not an integer or out of range; -ERR syntax error; \
             -ERR wrong number of arguments for 'bitfield' command; :0",
        );
        let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        check(
            "HSET h f v; BITFIELD h get u8 0; BITFIELD h set u8 0 1; BITFIELD h; BITFIELD_RO h; \
             BITFIELD_RO h set u8 0 1",
            &format!(
                ":1; {wrong_type}; {wrong_type}; {wrong_type}; {wrong_type}; \
                 -ERR BITFIELD_RO only supports the GET subcommand"
            ),
        );
    }

    #[test]
    fn the_log_gets_what_changed() {
        let mut bench = Bench::new(Protocol::Resp2);
        let steps = [
            ("BITFIELD k get u8 0", Effect::None),
            ("BITFIELD k overflow fail set u1 0 2", Effect::AsGiven),
            ("BITFIELD k overflow fail set u1 0 2", Effect::None),
            ("BITFIELD k set u8 0 7 get u8 0", Effect::AsGiven),
            ("BITFIELD k set u8 0 7", Effect::None),
        ];
        for (call, effect) in steps {
            assert_eq!(bench.call(split(call)[0].as_args()).1, effect, "{call}");
        }
    }

    #[test]
    fn events_of_fields() {
        check_events(
            "BITFIELD k GET u8 0; BITFIELD k SET u8 0 0; BITFIELD k SET u8 0 0; BITFIELD k SET \
             u8 0 1; BITFIELD k INCRBY u8 0 0; BITFIELD k INCRBY u8 0 1",
            "keymiss k; new k, setbit k; ; setbit k; ; setbit k",
        );
        check_events(
            "SET k x; BITFIELD k OVERFLOW FAIL INCRBY u2 0 3; BITFIELD_RO k GET u8 0; \
             BITFIELD_RO none GET u8 0; BITFIELD k SET u8 100 0; BITFIELD k GET u8 0 SET u8 0 1; \
             BITFIELD k SET u8 0 1 SET u8 0 2 SET u8 0 1; BITFIELD k",
            "new k, set k; ; ; keymiss none; setbit k; setbit k; setbit k; ",
        );
    }
}
