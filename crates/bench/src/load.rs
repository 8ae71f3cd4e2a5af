//! Loads exactly the keys 0 to n-1, and proves it.
//!
//! `redis-benchmark -r n` draws keys at random and so misses a third of them; a benchmark that
//! reads keys which do not exist measures something else. Keys have the form that
//! redis-benchmark's `key:__rand_int__` reads.

use std::io::{Read, Write};

use anyhow::{Result, bail, ensure};
use kvasir_harness::client::Client;
use kvasir_resp::value::Value;

/// Bytes of a value.
pub const VALUE_SIZE: usize = 64;

/// Bytes of a key of either shape.
pub const KEY_SIZE: usize = 16;

/// Keys read back by `verify`.
const SAMPLES: u64 = 1000;

/// How keys are spread over the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// `key:000000000042`: all slots.
    Spread,
    /// `{tag}00000000042`: one slot.
    OneTag,
}

impl Keys {
    fn write(self, index: u64, out: &mut Vec<u8>) {
        let (prefix, digits) = match self {
            Self::Spread => (&b"key:"[..], 12),
            Self::OneTag => (&b"{tag}"[..], 11),
        };
        let start = out.len() + prefix.len();
        out.extend_from_slice(prefix);
        out.resize(start + digits, b'0');
        let mut rest = index;
        for place in out[start..].iter_mut().rev() {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }
}

/// Sets all keys in batches of this many commands, one batch on its way while the replies to the
/// one before are read.
pub fn fill(client: Client, keys: Keys, count: u64, batch: u64) -> Result<()> {
    send_sets(client, count, batch, |index, out| write_set(keys, index, VALUE_SIZE, out))
}

/// Sends so many SETs, which `write` writes by their number, in batches as [`fill`] does.
pub fn send_sets(
    client: Client,
    count: u64,
    batch: u64,
    mut write: impl FnMut(u64, &mut Vec<u8>),
) -> Result<()> {
    let mut stream = client.into_stream();
    let mut requests = Vec::new();
    let (mut sent, mut done) = (0, 0);
    while done < count {
        let next = (sent + batch).min(count);
        requests.clear();
        (sent..next).for_each(|index| write(index, &mut requests));
        stream.write_all(&requests)?;
        // `done` lags one batch behind, so the server always has something to do.
        let answered = if next == count { count } else { sent };
        expect_ok(&mut stream, answered - done)?;
        (sent, done) = (next, answered);
    }
    Ok(())
}

/// Makes calls by their numbers, with two batches on their way, and compares every byte that comes
/// back.
pub fn exchange(
    mut stream: impl Read + Write,
    count: u64,
    batch: u64,
    request: impl Fn(u64) -> Vec<u8>,
    reply: impl Fn(u64) -> Vec<u8>,
) -> Result<()> {
    let mut seen = Vec::new();
    let (mut sent, mut answered) = (0, 0);
    while answered < count {
        let next = (sent + batch).min(count);
        stream.write_all(&(sent..next).flat_map(&request).collect::<Vec<_>>())?;
        let until = if next == count { count } else { sent };
        for number in answered..until {
            let wanted = reply(number);
            seen.resize(wanted.len(), 0);
            stream.read_exact(&mut seen)?;
            let start = String::from_utf8_lossy(&seen[..seen.len().min(100)]);
            ensure!(seen == wanted, "call {number} was answered with {start:?}...");
        }
        (sent, answered) = (next, until);
    }
    Ok(())
}

/// Fails unless the server holds exactly these keys, with a sample of the values compared.
pub fn verify(client: &mut Client, keys: Keys, count: u64) -> Result<()> {
    let found = client.dbsize()?;
    ensure!(found == count, "{count} keys were set, but the server counts {found}");
    for index in (0..count).step_by(usize::try_from(count.div_ceil(SAMPLES))?) {
        let (mut key, mut wanted) = (Vec::new(), Vec::new());
        keys.write(index, &mut key);
        write_value(index, VALUE_SIZE, &mut wanted);
        let reply = client.call(&[b"GET", &key])?;
        ensure!(reply == Value::Bulk(wanted), "key {index} has a wrong value: {reply:?}");
    }
    Ok(())
}

/// Writes the SET of a key to a value of `size` bytes, a multiple of 16.
pub fn write_set(keys: Keys, index: u64, size: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$16\r\n");
    keys.write(index, out);
    out.extend_from_slice(format!("\r\n${size}\r\n").as_bytes());
    write_value(index, size, out);
    out.extend_from_slice(b"\r\n");
}

/// Sixteen hexadecimal digits of each of some numbers that look random (SplitMix64), so that
/// nothing can be saved by equal values.
fn write_value(index: u64, size: usize, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let parts = (size / 16) as u64;
    for part in 0..parts {
        let mut bits = (index * parts + part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        out.extend((0..16).map(|place| DIGITS[(bits >> (4 * place) & 15) as usize]));
    }
}

fn expect_ok(stream: &mut impl Read, replies: u64) -> Result<()> {
    const OK: &[u8] = b"+OK\r\n";
    let mut bytes = vec![0; OK.len() * usize::try_from(replies)?];
    stream.read_exact(&mut bytes)?;
    if let Some(other) = bytes.chunks(OK.len()).find(|reply| *reply != OK) {
        bail!("SET was answered with {:?}...", String::from_utf8_lossy(other));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(keys: Keys, index: u64) -> String {
        let mut out = Vec::new();
        keys.write(index, &mut out);
        String::from_utf8(out).expect("digits")
    }

    #[test]
    fn keys_are_those_of_redis_benchmark() {
        assert_eq!(key(Keys::Spread, 9_999_999), "key:000009999999");
        assert_eq!(key(Keys::OneTag, 42), "{tag}00000000042");
        assert_eq!(key(Keys::OneTag, 0).len(), KEY_SIZE);
    }

    #[test]
    fn a_request_says_its_own_sizes() {
        let mut out = Vec::new();
        write_set(Keys::Spread, 7, VALUE_SIZE, &mut out);
        let text = String::from_utf8(out).expect("printable");
        let parts: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(parts[..5], ["*3", "$3", "SET", "$16", "key:000000000007"]);
        assert_eq!((parts[5], parts[6].len(), parts[7]), ("$64", VALUE_SIZE, ""));
    }

    #[test]
    fn a_reply_that_is_not_ok_is_seen() {
        assert!(expect_ok(&mut &b"+OK\r\n+OK\r\n"[..], 2).is_ok());
        assert!(expect_ok(&mut &b"+OK\r\n-OOM x"[..], 2).is_err());
        assert!(expect_ok(&mut &b"+OK\r\n"[..], 2).is_err());
    }

    /// Takes what is written for granted, and answers with what it was given.
    struct Answers(std::io::Cursor<Vec<u8>>);

    impl Read for Answers {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Answers {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn one_wrong_reply_is_noticed() {
        let reply = |number: u64| format!(":{number}\r\n").into_bytes();
        let exchange = |wrong: Option<u64>| {
            let answer = |number| reply(number + u64::from(Some(number) == wrong));
            let answers = Answers(std::io::Cursor::new((0..200).flat_map(answer).collect()));
            exchange(answers, 200, 64, |_| b"INCR\r\n".to_vec(), reply)
        };
        assert!(exchange(None).is_ok());
        for wrong in [0, 63, 64, 150, 199] {
            assert!(exchange(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
