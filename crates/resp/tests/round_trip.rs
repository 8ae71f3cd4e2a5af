//! What the server writes, the client reads: in RESP3 the same value, in RESP2 what stands for it.
// Clippy lets tests unwrap, but not the functions that they share.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kvasir_resp::decode::decode;
use kvasir_resp::ends::Ends;
use kvasir_resp::number::write_double;
use kvasir_resp::reply::{Protocol, Reply};
use kvasir_resp::value::Value;
use proptest::prelude::*;

/// Writes `value`; what RESP2 does not have is replaced by the writer.
fn write(reply: &mut Reply, value: &Value) {
    match value {
        Value::Simple(text) => reply.simple(str::from_utf8(text).unwrap()),
        Value::Error(text) => reply.error_bytes(text),
        Value::Integer(value) => reply.integer(*value),
        Value::Bulk(bytes) if bytes.len() > 8 => reply.bulk_shared(Arc::new(bytes.clone())),
        Value::Bulk(bytes) => reply.bulk(bytes),
        Value::Null => reply.null(),
        Value::NullArray => reply.null_array(),
        Value::Boolean(value) => reply.boolean(*value),
        Value::Double(value) => reply.double(*value),
        Value::BigNumber(digits) => reply.big_number(str::from_utf8(digits).unwrap()),
        Value::Verbatim { format, text } => reply.verbatim(format, text),
        Value::Array(items) => {
            let count = reply.deferred_array();
            items.iter().for_each(|item| write(reply, item));
            reply.set_count(count, items.len());
        }
        Value::Set(items) => {
            reply.set(items.len());
            items.iter().for_each(|item| write(reply, item));
        }
        Value::Push(items) => {
            reply.push(items.len());
            items.iter().for_each(|item| write(reply, item));
        }
        Value::Map(pairs) => {
            let count = reply.deferred_map();
            write_pairs(reply, pairs);
            reply.set_count(count, pairs.len());
        }
        Value::Annotated { attributes, value } => {
            if reply.protocol() == Protocol::Resp3 {
                reply.attribute(attributes.len());
                write_pairs(reply, attributes);
            }
            write(reply, value);
        }
    }
}

fn write_pairs(reply: &mut Reply, pairs: &[(Value, Value)]) {
    for (key, value) in pairs {
        write(reply, key);
        write(reply, value);
    }
}

/// What a RESP2 client sees of `value`.
fn in_resp2(value: &Value) -> Value {
    let all = |items: &[Value]| Value::Array(items.iter().map(in_resp2).collect());
    let text = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = vec![];
        write(&mut out);
        Value::Bulk(out)
    };
    match value {
        Value::Boolean(value) => Value::Integer(i64::from(*value)),
        Value::Double(value) => text(&|out| write_double(*value, out)),
        Value::BigNumber(bytes) | Value::Verbatim { text: bytes, .. } => Value::Bulk(bytes.clone()),
        Value::Array(items) | Value::Set(items) | Value::Push(items) => all(items),
        Value::Map(pairs) => {
            let flat = pairs.iter().flat_map(|(key, value)| [in_resp2(key), in_resp2(value)]);
            Value::Array(flat.collect())
        }
        Value::Annotated { value, .. } => in_resp2(value),
        other => other.clone(),
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..20);
    let leaf = prop_oneof![
        "[ -~]{0,9}".prop_map(|text| Value::Simple(text.into())),
        "[A-Z]{1,9} [ -~]{0,9}".prop_map(|text| Value::Error(text.into())),
        any::<i64>().prop_map(Value::Integer),
        bytes().prop_map(Value::Bulk),
        Just(Value::Null),
        any::<bool>().prop_map(Value::Boolean),
        any::<f64>()
            .prop_filter("is equal to itself", |value| !value.is_nan())
            .prop_map(Value::Double),
        "-?[0-9]{1,40}".prop_map(|digits| Value::BigNumber(digits.into())),
        bytes().prop_map(|text| Value::Verbatim { format: *b"txt", text }),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let items = || prop::collection::vec(inner.clone(), 0..6);
        let pairs = || prop::collection::vec((inner.clone(), inner.clone()), 0..4);
        prop_oneof![
            items().prop_map(Value::Array),
            items().prop_map(Value::Set),
            items().prop_map(Value::Push),
            pairs().prop_map(Value::Map),
            (pairs(), inner.clone()).prop_map(|(attributes, value)| {
                Value::Annotated { attributes, value: Box::new(value) }
            }),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_decodes_to_the_same(value in any_value()) {
        let mut reply = Reply::new(Protocol::Resp3);
        write(&mut reply, &value);
        prop_assert_eq!(reply.len(), reply.to_vec().len());
        prop_assert_eq!(decode(&reply.to_vec()), Ok(value.clone()));
        let mut reply = Reply::new(Protocol::Resp2);
        write(&mut reply, &value);
        prop_assert_eq!(decode(&reply.to_vec()), Ok(in_resp2(&value)));
    }

    /// Wherever the bytes are cut, and whatever follows.
    #[test]
    fn the_end_is_found_without_decoding(value in any_value(), cut in 0.0..1.0) {
        let mut reply = Reply::new(Protocol::Resp3);
        write(&mut reply, &value);
        let bytes = reply.to_vec();
        let cut = (bytes.len() as f64 * cut) as usize;
        let mut ends = Ends::default();
        if cut > 0 {
            prop_assert_eq!(ends.next_end(&bytes[..cut]), Ok(None));
        }
        let rest = [&bytes[cut..], b"+OK"].concat();
        prop_assert_eq!(ends.next_end(&rest), Ok(Some(bytes.len() - cut)));
    }
}
