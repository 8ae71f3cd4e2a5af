//! The library `bit`: operations on 32-bit numbers, as LuaJIT's BitOp has them.

use mlua::{Lua, Table, Value};

use crate::arguments::Arguments;
use crate::function::{Raise, function};

/// 2^52 + 2^51: added to a number, it leaves the number's low bits in those of the sum, rounded.
const BIAS: f64 = 6_755_399_441_055_744.0;

/// The most digits that `tohex` shows.
const HEX_DIGITS_MAX: u32 = 8;

type Operation = fn(&Arguments) -> Result<i32, Raise>;

const OPERATIONS: [(&str, Operation); 11] = [
    ("tobit", |arguments| bits(arguments, 1)),
    ("bnot", |arguments| Ok(!bits(arguments, 1)?)),
    ("band", |arguments| fold(arguments, |left, right| left & right)),
    ("bor", |arguments| fold(arguments, |left, right| left | right)),
    ("bxor", |arguments| fold(arguments, |left, right| left ^ right)),
    ("lshift", |arguments| shift(arguments, i32::wrapping_shl)),
    ("rshift", |arguments| shift(arguments, |bits, by| (bits as u32).wrapping_shr(by) as i32)),
    ("arshift", |arguments| shift(arguments, i32::wrapping_shr)),
    ("rol", |arguments| shift(arguments, |bits, by| bits.rotate_left(by & 31))),
    ("ror", |arguments| shift(arguments, |bits, by| bits.rotate_right(by & 31))),
    ("bswap", |arguments| Ok(bits(arguments, 1)?.swap_bytes())),
];

pub fn create(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (name, operation) in OPERATIONS {
        let run = move |_: &Lua, arguments: Arguments| {
            Ok(Value::Number(f64::from(operation(&arguments)?)))
        };
        table.raw_set(name, function(lua, run)?)?;
    }
    table.raw_set("tohex", function(lua, tohex)?)?;
    Ok(table)
}

fn bits(arguments: &Arguments, index: usize) -> Result<i32, Raise> {
    Ok((arguments.number(index)? + BIAS).to_bits() as i32)
}

fn fold(arguments: &Arguments, operation: fn(i32, i32) -> i32) -> Result<i32, Raise> {
    let mut result = bits(arguments, 1)?;
    for index in 2..=arguments.len() {
        result = operation(result, bits(arguments, index)?);
    }
    Ok(result)
}

/// Only the low five bits of the second argument count.
fn shift(arguments: &Arguments, operation: fn(i32, u32) -> i32) -> Result<i32, Raise> {
    Ok(operation(bits(arguments, 1)?, bits(arguments, 2)? as u32))
}

/// The low hexadecimal digits of a number; a negative count asks for capital ones.
fn tohex(lua: &Lua, arguments: Arguments) -> Result<Value, Raise> {
    let number = bits(&arguments, 1)?;
    let count = if arguments.len() < 2 { HEX_DIGITS_MAX as i32 } else { bits(&arguments, 2)? };
    let all = if count < 0 { format!("{number:08X}") } else { format!("{number:08x}") };
    let skipped = HEX_DIGITS_MAX - count.unsigned_abs().min(HEX_DIGITS_MAX);
    Ok(Value::String(lua.create_string(&all[skipped as usize..])?))
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn bits() {
        let script = |calls: &str| {
            let print = "local t = {%s} for i, v in ipairs(t) do t[i] = tostring(v) end return t";
            print.replace("%s", calls)
        };
        check(
            &script(
                "bit.tobit(0xffffffff), bit.tobit(2^32), bit.tobit(2^40 + 123), bit.tobit('5')",
            ),
            "[$-1 $0 $123 $5]",
        );
        check(
            &script("bit.tobit(1.5), bit.tobit(2.5), bit.tobit(-1.5), bit.tobit(0.5)"),
            "[$2 $2 $-2 $0]",
        );
        check(&script("bit.tobit(1e100), bit.tobit(0/0), bit.tobit(1/0)"), "[$630506365 $0 $0]");
        check(
            &script(
                "bit.bnot(0), bit.band(255, 15), bit.bor(1, 2, 4), bit.bxor(1, 3, 7), bit.band(5)",
            ),
            "[$-1 $15 $7 $5 $5]",
        );
        check(
            &script("bit.lshift(1, 31), bit.lshift(1, 32), bit.lshift(1, 33), bit.lshift(1, -1)"),
            "[$-2147483648 $1 $2 $-2147483648]",
        );
        check(
            &script(
                "bit.rshift(-1, 1), bit.arshift(-1, 1), bit.rol(0x12345678, 12), bit.ror(0x12345678, 12)",
            ),
            "[$2147483647 $-1 $1164411171 $1736516421]",
        );
        check(
            &script(
                "bit.tohex(1), bit.tohex(-1), bit.tohex(255, 4), bit.tohex(255, -4), bit.tohex(-1, -8)",
            ),
            "[$00000001 $ffffffff $00ff $00FF $FFFFFFFF]",
        );
        check(
            &script(
                "bit.tohex(1, 0), bit.tohex(255, 2), bit.tohex(255, 20), bit.tohex(255, -2147483648)",
            ),
            "[$ $ff $000000ff $000000FF]",
        );
        check(&script("bit.bswap(0x12345678)"), "[$2018915346]");
    }

    #[test]
    fn errors() {
        let error =
            |call: &str| format!("local ok, e = pcall(function() return {call} end) return e");
        check(
            &error("bit.band()"),
            "$user_script:1: bad argument #1 to \\'band\\' (number expected, got no value)",
        );
        check(
            &error("bit.lshift(1)"),
            "$user_script:1: bad argument #2 to \\'lshift\\' (number expected, got no value)",
        );
        check(
            &error("bit.tohex('x')"),
            "$user_script:1: bad argument #1 to \\'tohex\\' (number expected, got string)",
        );
    }
}
