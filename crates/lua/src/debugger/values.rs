//! Values of Lua and replies of commands, as the client of a debugger is shown them.

use kvasir_resp::decode::decode;
use kvasir_resp::inline::quoted;
use kvasir_resp::number::write_double;
use kvasir_resp::reply::Protocol;
use kvasir_resp::value::Value as Answer;
use mlua::{Function, Value};

/// Tables within tables that are shown.
const DEPTH_MAX: usize = 10;

/// Appends a value; `format` is Lua's own `string.format`.
pub fn write(format: &Function, value: &Value, depth: usize, out: &mut Vec<u8>) {
    if depth == DEPTH_MAX {
        return out.extend_from_slice(b"<max recursion level reached! Nested table?>");
    }
    match value {
        Value::Nil => out.extend_from_slice(b"nil"),
        Value::Boolean(true) => out.extend_from_slice(b"true"),
        Value::Boolean(false) => out.extend_from_slice(b"false"),
        Value::String(text) => out.extend(quoted(&text.as_bytes())),
        Value::Integer(_) | Value::Number(_) => {
            let text = format.call::<mlua::LuaString>(("%g", value));
            out.extend_from_slice(
                &text.map_or_else(|_| b"?".to_vec(), |text| text.as_bytes().to_vec()),
            );
        }
        Value::Table(table) => write_table(format, table, depth + 1, out),
        other => {
            let name = match other {
                Value::Function(_) => "function",
                Value::Thread(_) => "thread",
                Value::LightUserData(_) => "light-userdata",
                _ => "userdata",
            };
            out.extend_from_slice(format!("\"{name}@{:p}\"", other.to_pointer()).as_bytes());
        }
    }
}

/// As a list where the keys count from 1, else each element with its key.
fn write_table(format: &Function, table: &mlua::Table, depth: usize, out: &mut Vec<u8>) {
    let (mut list, mut pairs, mut is_list) = (Vec::new(), Vec::new(), true);
    for (index, pair) in table.pairs::<Value, Value>().flatten().enumerate() {
        let (key, value) = pair;
        is_list &= match key {
            Value::Integer(number) => number == index as i64 + 1,
            Value::Number(number) => number == index as f64 + 1.0,
            _ => false,
        };
        let mut text = Vec::new();
        write(format, &value, depth, &mut text);
        if index > 0 {
            list.extend_from_slice(b"; ");
            pairs.extend_from_slice(b"; ");
        }
        list.extend_from_slice(&text);
        pairs.push(b'[');
        write(format, &key, depth, &mut pairs);
        pairs.extend_from_slice(b"]=");
        pairs.extend_from_slice(&text);
    }
    out.push(b'{');
    out.extend_from_slice(if is_list { &list } else { &pairs });
    out.push(b'}');
}

/// What a command has answered, in the protocol that the script has chosen.
pub fn of_reply(bytes: &[u8], protocol: Protocol) -> Vec<u8> {
    let mut out = b"<reply> ".to_vec();
    let null = if protocol == Protocol::Resp3 { "(null)" } else { "NULL" };
    if let Ok(answer) = decode(bytes) {
        write_answer(&answer, null, &mut out);
    }
    out
}

fn write_answer(answer: &Answer, null: &str, out: &mut Vec<u8>) {
    match answer {
        Answer::Simple(text) => out.extend(quoted(&[b"+", &text[..]].concat())),
        Answer::Error(text) => out.extend(quoted(&[b"-", &text[..]].concat())),
        Answer::Integer(value) => out.extend_from_slice(value.to_string().as_bytes()),
        Answer::Bulk(text) | Answer::Verbatim { text, .. } => out.extend(quoted(text)),
        Answer::BigNumber(text) => out.extend_from_slice(text),
        Answer::Null | Answer::NullArray => out.extend_from_slice(null.as_bytes()),
        Answer::Boolean(truth) => out.extend_from_slice(if *truth { b"#true" } else { b"#false" }),
        Answer::Double(value) => {
            out.extend_from_slice(b"(double) ");
            write_double(*value, out);
        }
        Answer::Array(elements) | Answer::Push(elements) => {
            write_all(elements, null, [b"[", b"]"], out)
        }
        Answer::Set(elements) => write_all(elements, null, [b"~(", b")"], out),
        Answer::Map(pairs) => {
            out.push(b'{');
            for (index, (key, value)) in pairs.iter().enumerate() {
                out.extend_from_slice(if index == 0 { b"" } else { b"," });
                write_answer(key, null, out);
                out.extend_from_slice(b" => ");
                write_answer(value, null, out);
            }
            out.push(b'}');
        }
        Answer::Annotated { value, .. } => write_answer(value, null, out),
    }
}

fn write_all(elements: &[Answer], null: &str, [before, behind]: [&[u8]; 2], out: &mut Vec<u8>) {
    out.extend_from_slice(before);
    for (index, element) in elements.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"" } else { b"," });
        write_answer(element, null, out);
    }
    out.extend_from_slice(behind);
}
