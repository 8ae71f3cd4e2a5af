//! Requests arrive in pieces: wherever the bytes are cut, they mean the same.

// The canary is only known to the fuzz targets.
#[allow(unexpected_cfgs)]
#[path = "../fuzz/src/driver.rs"]
mod driver;

use driver::{Event, run};
use kvasir_resp::args::Span;
use kvasir_resp::encode::encode_request;
use kvasir_resp::request::{Limits, Parsed, Parser, ProtocolError};
use proptest::prelude::*;

fn any_args() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop_oneof![
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 1..5),
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3), 14..60),
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 1..3),
    ]
}

fn any_cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0usize..2000, 0..8).prop_map(|mut cuts| {
        cuts.sort_unstable();
        cuts
    })
}

/// Bytes that come near to a request.
fn any_tokens() -> impl Strategy<Value = Vec<u8>> {
    let tokens: [&[u8]; 22] = [
        b"\r\n",
        b"\r",
        b"\n",
        b"*",
        b"$",
        b"*1\r\n",
        b"*2\r\n",
        b"*0\r\n",
        b"*-1\r\n",
        b"*30\r\n",
        b"$1\r\na\r\n",
        b"$0\r\n\r\n",
        b"$3\r\n",
        b"$-1",
        b"1",
        b"0",
        b"-",
        b" ",
        b"\"",
        b"'",
        b"\0",
        b"x",
    ];
    let token =
        prop_oneof![8 => prop::sample::select(tokens.to_vec()), 1 => Just(&b"1111111111"[..])];
    prop::collection::vec(token, 0..60).prop_map(|tokens| tokens.concat())
}

proptest! {
    #[test]
    fn requests_parse_to_their_arguments_wherever_they_are_cut(
        requests in prop::collection::vec(any_args(), 1..4),
        cuts in any_cuts(),
    ) {
        let mut stream = vec![];
        let mut expected = vec![];
        for args in requests {
            stream.extend(encode_request(&args));
            expected.push(Event::Request(stream.len(), args));
        }
        let limits = Limits::default();
        prop_assert_eq!(&run(&stream, &[], &limits), &expected);
        prop_assert_eq!(&run(&stream, &cuts, &limits), &expected);
        let everywhere: Vec<usize> = (1..stream.len()).collect();
        prop_assert_eq!(&run(&stream, &everywhere, &limits), &expected);
    }

    #[test]
    fn an_argument_is_too_long_wherever_it_is_cut(
        requests in prop::collection::vec(any_args(), 1..4),
        cuts in any_cuts(),
        unread_max in 2u64..2000,
    ) {
        let fits = |args: &[Vec<u8>]| args.iter().all(|arg| arg.len() as u64 + 2 <= unread_max);
        let mut stream = vec![];
        let mut expected = vec![];
        for args in requests {
            let start = stream.len();
            stream.extend(encode_request(&args));
            if !fits(&args) {
                expected.push(Event::Error(start, ProtocolError::RequestTooLong));
                break;
            }
            expected.push(Event::Request(stream.len(), args));
        }
        let limits = Limits { unread_max, ..Limits::default() };
        let everywhere: Vec<usize> = (1..stream.len()).collect();
        prop_assert_eq!(&run(&stream, &[], &limits), &expected);
        prop_assert_eq!(&run(&stream, &cuts, &limits), &expected);
        prop_assert_eq!(&run(&stream, &everywhere, &limits), &expected);
    }

    #[test]
    fn any_bytes_mean_the_same_wherever_they_are_cut(
        stream in prop_oneof![any_tokens(), prop::collection::vec(any::<u8>(), 0..200)],
        cuts in any_cuts(),
        authenticated: bool,
        inline_len_max in prop::sample::select(&[16u32, 64 * 1024][..]),
    ) {
        let limits = Limits { authenticated, inline_len_max, ..Limits::default() };
        let whole = run(&stream, &[], &limits);
        prop_assert_eq!(&run(&stream, &cuts, &limits), &whole);
        let everywhere: Vec<usize> = (1..stream.len()).collect();
        prop_assert_eq!(&run(&stream, &everywhere, &limits), &whole);
    }
}

/// 300,000 arguments in pieces of 4 KiB: reading each piece from the request's start would touch
/// 20 million arguments per megabyte.
#[test]
fn a_long_request_is_read_once() {
    let args = vec![b"value"; 300_000];
    let stream = encode_request(&args);
    let (mut parser, mut spans) = (Parser::default(), Vec::<Span>::new());
    let mut end = 0;
    let parsed = loop {
        end = stream.len().min(end + 4096);
        let limits = Limits::default();
        match parser.parse(&stream[..end], &mut spans, &mut vec![], &limits).unwrap() {
            Parsed::Incomplete { wanted } => assert!(wanted > end && spans.is_empty()),
            parsed => break parsed,
        }
    };
    assert_eq!(parsed, Parsed::Request { consumed: stream.len() });
    assert_eq!((spans.len(), parser.size_bytes()), (300_000, 0));
}
