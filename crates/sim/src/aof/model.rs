//! What is logged in a run: entry after entry, each known by its number.

use kvasir_resp::encode::encode_request;

/// Every call of an entry: its entry's number and its own.
pub type Call = (usize, usize);

/// The bytes of an entry: a call, or some between MULTI and EXEC.
pub fn entry(number: usize) -> Vec<u8> {
    let calls = calls(number).flat_map(|(number, part)| {
        let value = "x".repeat(number * 37 % 90);
        encode_request(&["SET", &number.to_string(), &part.to_string(), &value])
    });
    match count(number) {
        1 => calls.collect(),
        _ => encode_request(&["MULTI"])
            .into_iter()
            .chain(calls)
            .chain(encode_request(&["EXEC"]))
            .collect(),
    }
}

/// The calls of an entry, as they come back.
pub fn calls(number: usize) -> impl Iterator<Item = Call> {
    (0..count(number)).map(move |part| (number, part))
}

fn count(number: usize) -> usize {
    [1, 2, 1, 3][number % 4]
}
