//! Requests whole, in pieces, and broken.

use super::*;
use crate::args::Args;

/// One request from the start of `input`, as its arguments and what it consumed.
fn parse(input: &[u8], limits: &Limits) -> Result<(Parsed, Vec<Vec<u8>>), ProtocolError> {
    let (mut spans, mut scratch) = (vec![], vec![]);
    let parsed = Parser::default().parse(input, &mut spans, &mut scratch, limits)?;
    let bytes = if matches!(parsed, Parsed::Inline { .. }) { &scratch } else { input };
    Ok((parsed, Args::new(bytes, &spans).iter().map(<[u8]>::to_vec).collect()))
}

fn check(input: &[u8], parsed: Parsed, args: &[&str]) {
    let args = args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
    assert_eq!(parse(input, &Limits::default()), Ok((parsed, args)), "{}", input.escape_ascii());
}

#[test]
fn a_request_is_its_arguments() {
    let input = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$12\r\nhello world!\r\n*1\r\n";
    check(input, Parsed::Request { consumed: 39 }, &["SET", "k", "hello world!"]);
    for len in 1..39 {
        let parsed = parse(&input[..len], &Limits::default());
        let Ok((Parsed::Incomplete { wanted }, args)) = parsed else {
            panic!("{len}: {parsed:?}");
        };
        assert!(args.is_empty() && (len + 1..=39).contains(&wanted), "{len} {wanted}");
    }
}

#[test]
fn long_headers() {
    let arg = "x".repeat(1234);
    let input = ["*1\r\n$1234\r\n", &arg, "\r\n"].concat();
    check(input.as_bytes(), Parsed::Request { consumed: input.len() }, &[&arg]);
}

#[test]
fn what_is_not_strict() {
    check(b"*1\r\n$0\r\n\r\n", Parsed::Request { consumed: 10 }, &[""]);
    check(b"*0\r\n", Parsed::Nothing { consumed: 4 }, &[]);
    check(b"*-1\r\n", Parsed::Nothing { consumed: 5 }, &[]);
    check(b"*-9223372036854775808\r\n", Parsed::Nothing { consumed: 23 }, &[]);
    check(b"\n*1", Parsed::Nothing { consumed: 1 }, &[]);
    check(b"\r\n*1", Parsed::Nothing { consumed: 2 }, &[]);
    check(b"  \r\n*1", Parsed::Nothing { consumed: 4 }, &[]);
    check(b"PING\nx", Parsed::Inline { consumed: 5 }, &["PING"]);
    check(b"SET 'a b' \"c\"\r\n", Parsed::Inline { consumed: 15 }, &["SET", "a b", "c"]);
    check(b"'' a\r\n", Parsed::Inline { consumed: 6 }, &["", "a"]);
}

#[test]
fn what_is_waited_for() {
    check(b"", Parsed::Incomplete { wanted: 1 }, &[]);
    check(b"PING\r", Parsed::Incomplete { wanted: 6 }, &[]);
    check(b"*1\r\nx", Parsed::Incomplete { wanted: 6 }, &[]);
    check(b"*1x\r", Parsed::Incomplete { wanted: 5 }, &[]);
    check(b"*2147483647\r\n", Parsed::Incomplete { wanted: 14 }, &[]);
    check(b"*1\r\n$536870912\r\n", Parsed::Incomplete { wanted: 536_870_930 }, &[]);
    // Behind a NUL byte an inline request does not end.
    check(b"a\0b\r\n", Parsed::Incomplete { wanted: 65_537 }, &[]);
}

#[test]
fn errors_are_those_of_redis() {
    let cases: [(&[u8], &str); 40] = [
        (b"*2147483648\r\n", "invalid multibulk length"),
        (b"*9223372036854775808\r\n", "invalid multibulk length"),
        (b"*99999999999999999999999\r\n", "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*\0\r\n", "invalid multibulk length"),
        (b"*1\r\n$\0\r\n", "invalid bulk length"),
        (b"*1\r\n\0\r\n", "expected '$', got '\0'"),
        (b"*-0\r\n", "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"* 1\r\n", "invalid multibulk length"),
        (b"*1 \r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"*1\n$4\r\nPING\r\n", "invalid multibulk length"),
        (b"*a\rX", "invalid CRLF in request"),
        (b"*1\rX", "invalid CRLF in request"),
        (b"*-1\r\r\n", "invalid CRLF in request"),
        (b"*1\r\n$-1\rX", "invalid CRLF in request"),
        (b"*1\r\n$4\rXPING\r\n", "invalid CRLF in request"),
        (b"*2\r\n$4\r\nPINGxx", "invalid CRLF in request"),
        (b"*1\r\n$4\r\nPING\n\r", "invalid CRLF in request"),
        (b"*1\r\n$0\r\nx\n", "invalid CRLF in request"),
        (b"*1\r\nx\rX", "expected '$', got 'x'"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$-0\r\n", "invalid bulk length"),
        (b"*1\r\n$+4\r\n", "invalid bulk length"),
        (b"*1\r\n$ 4\r\n", "invalid bulk length"),
        (b"*1\r\n$04\r\n", "invalid bulk length"),
        (b"*1\r\n$4 \r\n", "invalid bulk length"),
        (b"*1\r\n$\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*1\r\n$99999999999999999999999\r\n", "invalid bulk length"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\nx\r\n", "expected '$', got 'x'"),
        (b"*2\r\n*1\r\n", "expected '$', got '*'"),
        (b"*1\r\n\r\n", "expected '$', got '\r'"),
        (b"*1\r\n\n\r\n", "expected '$', got '\n'"),
        (b"*2\r\n$1\r\nx\r\n:\r\n", "expected '$', got ':'"),
        (b"ECHO \"a\r\n", "unbalanced quotes in request"),
        (b"ECHO 'a\n", "unbalanced quotes in request"),
        (b"ECHO 'a'b'\r\n", "unbalanced quotes in request"),
    ];
    for (input, text) in cases {
        check_error(input, text, &Limits::default());
    }
}

fn check_error(input: &[u8], text: &str, limits: &Limits) {
    let error = parse(input, limits).expect_err(&input.escape_ascii().to_string());
    assert_eq!(error.text(), format!("Protocol error: {text}").as_bytes());
}

#[test]
fn a_byte_that_is_no_text_is_named_as_it_is() {
    let error = parse(b"*1\r\n\xff\r\n", &Limits::default()).unwrap_err();
    assert_eq!(error.text(), b"Protocol error: expected '$', got '\xff'");
}

#[test]
fn lines_have_a_limit() {
    let limits = Limits::default();
    for (start, text) in [
        ("", "too big inline request"),
        ("*", "too big mbulk count string"),
        ("*1\r\n$", "too big bulk count string"),
        ("*1\r\n\0", "too big bulk count string"),
    ] {
        let before = start.find('\n').map_or(0, |end| end + 1);
        let mut input = start.as_bytes().to_vec();
        input.resize(before + 65_536, b'1');
        assert!(matches!(parse(&input, &limits), Ok((Parsed::Incomplete { .. }, _))));
        input.push(b'1');
        check_error(&input, text, &limits);
        input.extend_from_slice(b"\r\n");
        check_error(&input, text, &limits);
    }
    let line = [&[b'x'; 65_536][..], b"\n"].concat();
    let (parsed, args) = parse(&line, &limits).expect("a line of the longest length");
    assert_eq!((parsed, args[0].len()), (Parsed::Inline { consumed: 65_537 }, 65_536));
}

#[test]
fn who_is_not_authenticated_gets_little() {
    let limits = Limits { authenticated: false, ..Limits::default() };
    let wait = |input: &[u8]| matches!(parse(input, &limits), Ok((Parsed::Incomplete { .. }, _)));
    assert!(wait(b"*10\r\n"));
    assert!(wait(b"*1\r\n$16384\r\n"));
    check_error(b"*11\r\n", "unauthenticated multibulk length", &limits);
    check_error(b"*1\r\n$16385\r\n", "unauthenticated bulk length", &limits);
    check_error(b"*2147483648\r\n", "invalid multibulk length", &limits);
    check_error(b"*1\r\n$536870913\r\n", "invalid bulk length", &limits);
}

#[test]
fn a_place_past_4_gib_is_an_error() {
    let limits = Limits { bulk_len_max: u64::MAX, ..Limits::default() };
    check_error(b"*1\r\n$4294967290\r\n", "too big request", &limits);
    check_error(b"*1\r\n$9223372036854775807\r\n", "too big request", &limits);
}
