//! Replies as they stand in the buffer.

use super::*;

/// What `write` sends to a RESP2 and to a RESP3 client.
fn check(resp2: &str, resp3: &str, write: fn(&mut Reply)) {
    for (protocol, text) in [(Protocol::Resp2, resp2), (Protocol::Resp3, resp3)] {
        let mut reply = Reply::new(protocol);
        write(&mut reply);
        assert_eq!(reply.to_vec().escape_ascii().to_string(), text.replace(' ', "\\r\\n"));
        assert_eq!(reply.len(), reply.to_vec().len());
    }
}

#[test]
fn every_type_in_both_protocols() {
    check("+OK ", "+OK ", Reply::ok);
    check("+PONG ", "+PONG ", |reply| reply.simple("PONG"));
    check(":-12 ", ":-12 ", |reply| reply.integer(-12));
    check(":1 ", "#t ", |reply| reply.boolean(true));
    check(":0 ", "#f ", |reply| reply.boolean(false));
    check("$-1 ", "_ ", Reply::null);
    check("*-1 ", "_ ", Reply::null_array);
    check("$18 3.2999999999999998 ", ",3.2999999999999998 ", |reply| reply.double(3.3));
    check("$3 3.3 ", ",3.3 ", |reply| reply.double_shortest(3.3));
    check("$4 -inf ", ",-inf ", |reply| reply.double(f64::NEG_INFINITY));
    check("$2 12 ", "(12 ", |reply| reply.big_number("12"));
    check("$0  ", "$0  ", |reply| reply.bulk(b""));
    check("$2 ab ", "$2 ab ", |reply| reply.bulk_appended(2, |bytes| bytes.extend(b"ab")));
    check("$3 -10 ", "$3 -10 ", |reply| reply.bulk_integer(-10));
    check("$2 ab ", "=6 txt:ab ", |reply| reply.verbatim(b"txt", b"ab"));
    check("$2 ab ", "$2 ab ", |reply| reply.bulk_shared(Arc::new(b"ab".to_vec())));
    check("*12 ", "*12 ", |reply| reply.array(12));
    check("*4 ", "%2 ", |reply| reply.map(2));
    check("*2 ", "~2 ", |reply| reply.set(2));
    check("*2 ", ">2 ", |reply| reply.push(2));
}

#[test]
fn an_error_is_one_line() {
    let mut reply = Reply::default();
    reply.error("ERR a\r\nb\n");
    reply.protocol_error(ProtocolError::ExpectedBulk { got: b'\n' });
    let text = b"-ERR a  b\r\n-ERR Protocol error: expected '$', got ' '\r\n";
    assert_eq!(reply.bytes(), text);
}

#[test]
fn errors_are_counted_by_code() {
    let mut reply = Reply::default();
    reply.error("ERR before");
    let mark = reply.mark();
    assert_eq!((reply.error_count(mark), reply.last_error_code(mark)), (0, None));
    let array = reply.deferred_array();
    reply.error("WRONGTYPE Operation");
    reply.error("OOM");
    reply.set_count(array, 2);
    assert_eq!((reply.error_count(mark), reply.last_error_code(mark)), (2, Some(&b"OOM"[..])));
    let mut outer = Reply::default();
    outer.ok();
    let before = outer.mark();
    outer.append(&mut reply);
    assert_eq!((outer.error_count(before), reply.is_empty()), (3, true));
    assert_eq!(outer.last_error_code(before), Some(&b"OOM"[..]));
    outer.truncate(before);
    assert_eq!((outer.error_count(before), outer.bytes()), (0, &b"+OK\r\n"[..]));
}

#[test]
fn deferred_headers_move_what_follows() {
    check("*2 $2 ab *4 $1 x :1 :2 :3 ", "*2 $2 ab %2 $1 x :1 :2 :3 ", |reply| {
        let outer = reply.deferred_array();
        reply.bulk_shared(Arc::new(b"ab".to_vec()));
        let inner = reply.deferred_map();
        reply.bulk_shared(Arc::new(b"x".to_vec()));
        (1..4).for_each(|value| reply.integer(value));
        reply.set_count(inner, 2);
        reply.set_count(outer, 2);
    });
}

#[test]
fn truncate_drops_shared_values_too() {
    let mut reply = Reply::default();
    reply.bulk_shared(Arc::new(vec![b'a'; 3]));
    let (mark, before) = (reply.mark(), reply.to_vec());
    reply.bulk_shared(Arc::new(vec![b'b'; 5]));
    reply.ok();
    assert_eq!(reply.len_since(mark), 16);
    reply.truncate(mark);
    assert_eq!((reply.to_vec(), reply.len(), reply.chunks().len()), (before, 9, 1));
}

#[test]
fn a_buffer_goes_out_and_comes_back() {
    let mut reply = Reply::new(Protocol::Resp3);
    let value = Arc::new(vec![b'v'; 10]);
    reply.bulk_shared(value.clone());
    let (bytes, chunks) = reply.take();
    assert_eq!((&bytes[..], &chunks[..]), (&b"$10\r\n\r\n"[..], &[(5, value)][..]));
    assert!(reply.is_empty() && reply.size_bytes() == 0);
    let capacity = bytes.capacity();
    reply.give_back(bytes);
    assert_eq!((reply.size_bytes(), reply.len()), (capacity, 0));
    reply.clear();
    reply.give_back(Vec::with_capacity(CAPACITY_KEPT_MAX + 1));
    assert_eq!((reply.size_bytes(), reply.protocol()), (capacity, Protocol::Resp3));
}

/// Writes one more of each kind until the reply is cut; it never gets longer than its bound.
#[test]
fn a_bound_holds_for_every_type() {
    type Write = fn(&mut Reply);
    let writers: [Write; 15] = [
        Reply::ok,
        |reply| reply.simple("PONG"),
        |reply| reply.error("ERR no"),
        |reply| reply.integer(-12),
        |reply| reply.boolean(true),
        Reply::null,
        Reply::null_array,
        |reply| reply.double(3.3),
        |reply| reply.big_number("12"),
        |reply| reply.bulk(&[b'x'; 3000]),
        |reply| reply.bulk_appended(2, |bytes| bytes.extend(b"ab")),
        |reply| reply.bulk_shared(Arc::new(vec![b'x'; 70_000])),
        |reply| reply.verbatim(b"txt", b"ab"),
        |reply| reply.raw_appended(2, |bytes| bytes.extend(b"ab")),
        |reply| {
            let array = reply.deferred_array();
            reply.bulk_integer(7);
            reply.set_count(array, 1);
        },
    ];
    const BOUND: usize = 300_000;
    for (protocol, write) in
        writers.iter().flat_map(|write| [(Protocol::Resp2, write), (Protocol::Resp3, write)])
    {
        let mut reply = Reply::new(protocol);
        reply.set_bound(BOUND);
        let mark = reply.mark();
        while !reply.is_cut() {
            write(&mut reply);
        }
        let len = reply.len();
        assert!(len <= BOUND && reply.size_bytes() <= BOUND + 64 * 1024, "{}", reply.size_bytes());
        (0..10).for_each(|_| write(&mut reply));
        assert_eq!(reply.len(), len, "nothing more is taken");
        reply.truncate(mark);
        assert!(!reply.is_cut() && reply.is_empty(), "what was cut is gone");
        reply.ok();
        assert_eq!(reply.bytes(), b"+OK\r\n");
    }
}

#[test]
fn what_is_appended_counts_for_the_bound() {
    let part = || {
        let mut part = Reply::default();
        part.bulk_shared(Arc::new(vec![b'x'; 600]));
        part
    };
    let mut reply = Reply::default();
    reply.set_bound(1000);
    reply.append(&mut part());
    assert!(!reply.is_cut());
    let (len, mut second) = (reply.len(), part());
    reply.append(&mut second);
    assert!(reply.is_cut() && second.is_empty() && reply.len() == len);
    let mark = reply.mark();
    reply.truncate(mark);
    assert!(reply.is_cut(), "it was so already");
    let mut outer = Reply::default();
    outer.append(&mut reply);
    assert!(outer.is_cut(), "a part of it is missing");
    outer.set_bound(usize::MAX);
    assert!(!outer.is_cut() && !outer.is_bounded());
}
