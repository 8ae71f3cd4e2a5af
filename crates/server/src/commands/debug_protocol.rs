//! DEBUG PROTOCOL: a reply of each type, for those who write clients.

use kvasir_keyspace::error::Error;
use kvasir_resp::reply::Protocol;

use crate::run::server::ServerCx;

/// What Redis takes for a number that is not whole.
#[expect(clippy::approx_constant, reason = "no mathematics, but what clients test for")]
const DOUBLE: f64 = 3.141;

pub fn reply(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let word = cx.args[2].to_ascii_lowercase();
    let reply = cx.reply();
    match word.as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.integer(12345),
        b"double" => reply.double(DOUBLE),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|number| reply.integer(number));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|number| reply.integer(number));
        }
        b"map" => {
            reply.map(3);
            for number in 0..3 {
                reply.integer(number);
                reply.boolean(number == 1);
            }
        }
        b"attrib" => attribute(cx),
        b"push" => return push(cx),
        b"verbatim" => reply.verbatim(b"txt", b"This is a verbatim\nstring"),
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        b"bignum" => reply.big_number("1234567999999999999999999999999999999"),
        _ => return Err(UNKNOWN),
    }
    Ok(())
}

const UNKNOWN: Error = Error::fixed(
    "ERR Wrong protocol type name. Please use one of the following: string|integer|double|bignum|\
     null|array|set|map|attrib|push|verbatim|true|false",
);

/// Only RESP3 has attributes; the reply that they are about comes in both.
fn attribute(cx: &mut ServerCx<'_>) {
    let reply = cx.reply();
    if reply.protocol() == Protocol::Resp3 {
        reply.attribute(1);
        reply.bulk(b"key-popularity");
        reply.array(2);
        reply.bulk(b"key:123");
        reply.integer(90);
    }
    reply.bulk(b"Some real reply following the attribute");
}

fn push(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let reply = cx.reply();
    if reply.protocol() == Protocol::Resp2 {
        return Err(Error::fixed("ERR RESP2 is not supported by this command"));
    }
    reply.bulk(b"Some real reply following the push reply");
    reply.push(2);
    reply.bulk(b"server-cpu-usage");
    reply.integer(42);
    Ok(())
}
