//! Any bytes go through a script unchanged: from KEYS and ARGV to a command, and from its reply
//! out. Any bytes as a command's reply are read, or are an error for the script.
#![no_main]

mod machine;

use kvasir_resp::args::ArgsBuf;
use kvasir_resp::decode::decode;
use kvasir_resp::reply::Reply;
use libfuzzer_sys::fuzz_target;
use machine::Bench;

const ECHO: &str = "return {redis.call('echo', unpack(KEYS)), ARGV}";
const READ: &str = "redis.setresp(tonumber(ARGV[1])) return redis.pcall('read')";

thread_local! {
    static BENCHES: [Bench; 2] = [ECHO, READ].map(Bench::new);
}

fuzz_target!(|input: &[u8]| {
    BENCHES.with(|[echo, read]| {
        check_echo(echo, input);
        if input.is_empty() {
            return;
        }
        *read.machine.server.reply.borrow_mut() = input.to_vec();
        for protocol in [b"2", b"3"] {
            // A script that returns an error has failed.
            if let Ok(reply) = read.try_run(&[], &[protocol]) {
                assert!(decode(&reply).is_ok(), "{}", reply.escape_ascii());
            }
        }
    });
});

/// Lines are arguments; half of them are keys.
fn check_echo(bench: &Bench, input: &[u8]) {
    let words: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
    let (keys, argv) = words.split_at(words.len() / 2);
    let replied = bench.run(keys, argv);
    let call: ArgsBuf = [&b"echo"[..]].iter().chain(keys).collect();
    assert_eq!(*bench.machine.server.calls.borrow(), [call.clone()]);
    let mut expected = Reply::default();
    expected.array(2);
    expected.array(call.len());
    call.as_args().iter().for_each(|arg| expected.bulk(arg));
    expected.array(argv.len());
    // The bug that the fuzzer must find.
    let is_cut = |arg: &[u8]| cfg!(feature = "canary") && arg.contains(&0) && arg.len() > 2;
    argv.iter().for_each(|arg| expected.bulk(if is_cut(arg) { &arg[..1] } else { arg }));
    assert_eq!(replied, expected.to_vec());
}
