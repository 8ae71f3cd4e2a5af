//! Lines and blocks, whole and cut.

use super::*;

const LIMITS: Limits = Limits { is_authenticated: true, item_size_max: 1 << 20 };

/// The calls of a stream that is received in pieces, with their words.
fn calls(stream: &[u8], cuts: &[usize], limits: &Limits) -> Vec<(Call, Vec<Vec<u8>>)> {
    let (mut parser, mut input, mut found) = (Parser::default(), Vec::new(), Vec::new());
    let ends = cuts.iter().copied().chain([stream.len()]);
    let mut from = 0;
    for end in ends {
        input.extend_from_slice(&stream[from..end]);
        from = end;
        let mut used = 0;
        loop {
            let (mut spans, mut scratch) = (Vec::new(), Vec::new());
            match parser.parse(&input[used..], &mut spans, &mut scratch, limits) {
                Parsed::Incomplete => break,
                Parsed::Nothing { consumed } => used += consumed,
                Parsed::Call { consumed, call, args } => {
                    let bytes = if args == Where::Scratch { &scratch } else { &input[used..] };
                    let words = spans.iter().map(|span| bytes[span.range()].to_vec());
                    found.push((call, if call_has_words(call) { words.collect() } else { vec![] }));
                    used += consumed;
                }
            }
        }
        input.drain(..used);
    }
    found
}

fn call_has_words(call: Call) -> bool {
    !matches!(call, Call::Say(_) | Call::SayAndClose(_) | Call::Binary | Call::Quit)
}

fn check(stream: &str, expected: &[(Call, &str)]) {
    let stream = stream.as_bytes();
    let whole = calls(stream, &[], &LIMITS);
    let expected: Vec<_> = expected
        .iter()
        .map(|(call, words)| {
            let words = words.split(' ').filter(|word| !word.is_empty());
            (*call, words.map(|word| word.as_bytes().to_vec()).collect())
        })
        .collect();
    assert_eq!(whole, expected, "{}", stream.escape_ascii());
    for cut in 1..stream.len() {
        assert_eq!(calls(stream, &[cut], &LIMITS), whole, "{} {cut}", stream.escape_ascii());
    }
    let everywhere: Vec<usize> = (1..stream.len()).collect();
    assert_eq!(calls(stream, &everywhere, &LIMITS), whole, "{}", stream.escape_ascii());
}

fn store(mode: Mode) -> Store {
    Store { mode, flags: 0, exptime: 0, id: 0, is_quiet: false }
}

#[test]
fn classic_commands() {
    check(
        "get a\r\n gets  a b \r\ngat 5 a b\nquit\r\n",
        &[
            (Call::Get { with_id: false }, "get a"),
            (Call::Get { with_id: true }, "gets a b"),
            (Call::GetAndTouch { with_id: false, exptime: 5 }, "gat a b"),
            (Call::Quit, ""),
        ],
    );
    let cas = Store { exptime: -1, id: 77, is_quiet: true, ..store(Mode::Cas) };
    let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
    assert_eq!(
        calls(b"set k 5 10 3\r\nabc\r\ncas k 0 -1 0 77 noreply\r\n\r\n", &[4, 20], &LIMITS),
        [
            (
                Call::Store(Store { flags: 5, exptime: 10, ..store(Mode::Set) }),
                words(&["set", "k", "abc"])
            ),
            (Call::Store(cas), words(&["cas", "k", ""])),
        ]
    );
    check(
        "append k 0 0 2\r\nget\r\nmn\r\n",
        &[
            (Call::Say("CLIENT_ERROR bad data chunk"), ""),
            (Call::Say("ERROR"), ""),
            (Call::Say("MN"), ""),
        ],
    );
}

#[test]
fn what_is_wrong_is_told_as_memcached_does() {
    const BAD: &str = "CLIENT_ERROR bad command line format";
    let long = format!("get {}\r\n", "k".repeat(251));
    for (line, text) in [
        ("\r\n", "ERROR"),
        ("x\r\n", "ERROR"),
        ("GET a\r\n", "ERROR"),
        ("get\r\n", "ERROR"),
        ("gat 1\r\n", "END"),
        ("gat x a\r\n", "CLIENT_ERROR invalid exptime argument"),
        (&long, BAD),
        ("set a 0 0\r\n", "ERROR"),
        ("set a 0 0 -1\r\n", BAD),
        ("set a x 0 1\r\n", BAD),
        ("set a x 0 1 noreply\r\n", ""),
        ("incr a x\r\n", "CLIENT_ERROR invalid numeric delta argument"),
        ("touch a\r\n", "ERROR"),
        ("delete a 1\r\n", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]"),
        ("flush_all x\r\n", "CLIENT_ERROR invalid exptime argument"),
        ("verbosity\r\n", "ERROR"),
        ("mg\r\n", "ERROR"),
        ("mg a x\r\n", "CLIENT_ERROR invalid flag"),
        ("mg a v v\r\n", "CLIENT_ERROR duplicate flag"),
        ("mg !! b\r\n", "CLIENT_ERROR error decoding key"),
        ("md a x\r\n", "CLIENT_ERROR invalid or duplicate flag"),
        ("ms a\r\n", BAD),
        ("ms a S2\r\n", BAD),
        ("ma a MX\r\n", "CLIENT_ERROR invalid mode for ma M token"),
        ("mx\r\n", "ERROR"),
        ("mn\r\n", "MN"),
    ] {
        check(line, &[(Call::Say(text), "")]);
    }
}

#[test]
fn blocks_that_are_refused_are_passed_over() {
    let long = "x".repeat(1 << 20);
    let stream = format!("set k 0 0 {}\r\n{long}\r\nmn\r\n", 1 << 20);
    let expected = [
        (Call::TooLarge { is_quiet: false }, vec![b"set".to_vec(), b"k".to_vec()]),
        (Call::Say("MN"), vec![]),
    ];
    for cuts in [vec![], vec![3], vec![20, 30, 1 << 19], vec![(1 << 20) + 18]] {
        assert_eq!(calls(stream.as_bytes(), &cuts, &LIMITS), expected);
    }
    check(
        "ms k 2 MX\r\nhi\r\nmn\r\n",
        &[(Call::Say("CLIENT_ERROR invalid mode for ms M token"), ""), (Call::Say("MN"), "")],
    );
}

#[test]
fn meta_commands_and_keys_in_base64() {
    let flags = Flags { wants_value: true, ..Flags::default() };
    check("mg a v\r\n", &[(Call::MetaGet(flags), "mg a v")]);
    let flags = Flags { is_base64: true, client_flags: 3, ..Flags::default() };
    check("ms Zm9v 2 b F3\r\nhi\r\n", &[(Call::MetaSet(flags, Mode::Set), "ms foo hi b F3")]);
    let flags = Flags { id: Some(5), ..Flags::default() };
    assert_eq!(
        calls(b"ms a 0 C5\r\n\r\n", &[], &LIMITS),
        [(
            Call::MetaSet(flags, Mode::Cas),
            vec![b"ms".to_vec(), b"a".to_vec(), vec![], b"C5".to_vec()]
        )]
    );
}

#[test]
fn who_has_not_logged_in_can_only_do_that() {
    let limits = Limits { is_authenticated: false, ..LIMITS };
    let words =
        |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    assert_eq!(
        calls(b"get a\r\nset x 0 0 9\r\nuser pass\r\nset x 0 0 1\r\nxyz", &[], &limits),
        [
            (Call::Say("CLIENT_ERROR unauthenticated"), vec![]),
            (Call::Login, words(&["set", "x", "user pass"])),
            (Call::Say("CLIENT_ERROR bad command line termination"), vec![]),
        ]
    );
    let endless = vec![b'x'; 3000];
    assert_eq!(calls(&endless, &[], &LIMITS), [(Call::SayAndClose(""), vec![])]);
    let gets = [b"get ", &endless[..]].concat();
    assert_eq!(calls(&gets, &[], &LIMITS), []);
    assert_eq!(calls(&gets, &[], &limits), [(Call::SayAndClose(""), vec![])]);
    assert_eq!(calls(b"\x80\0\0", &[], &LIMITS), [(Call::Binary, vec![])]);
}
