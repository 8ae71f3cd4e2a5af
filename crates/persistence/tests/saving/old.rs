//! Files of old versions, byte by byte: each gives the same data as one of version 11.

use kvasir_structures::crc64;

use crate::support::{Data, TARGET};

/// "f" and 5: the elements of a list, the pair of a hash, the member of a sorted set.
const ZIPLIST: &[u8] = b"\x10\x10\0\0\0\x0d\0\0\0\x02\0\0\x01f\x03\xf6\xff";
const ZIPMAP: &[u8] = b"\x07\x01\x01f\x01\x005\xff";
const LISTPACK: &[u8] = b"\x0c\x0c\0\0\0\x02\0\x81f\x02\x05\x01\xff";

const STRING: &[u8] = b"\0\x01s\x05hello";
/// 1 and 5, and "a" and "b".
const SETS: &[u8] = b"\x02\x01i\x02\xc0\x01\xc0\x05\x02\x01w\x02\x01a\x01b";
const INTSET_AND_SET: &[u8] = b"\x0b\x01i\x0c\x02\0\0\0\x02\0\0\0\x01\0\x05\0\
      \x02\x01w\x02\x01a\x01b";
/// In the second database a string that expires in 2036, as late as 32 bits can say: in seconds,
/// and in ms.
const VOLATILE_S: &[u8] = b"\xfe\x01\xfd\x00\x75\x2b\x7d\0\x01e\x01v";
const VOLATILE_MS: &[u8] = b"\xfe\x01\xfc\x00\x08\xc1\xf1\xe8\x01\x00\x00\0\x01e\x01v";
const FIRST_DB: &[u8] = b"\xfe\0";

/// What stands between the header and the end, which is added.
fn data_of(version: u16, parts: &[&[u8]]) -> Data {
    let mut file = format!("REDIS{version:04}").into_bytes();
    file.extend(parts.concat());
    file.push(0xff);
    if version >= 5 {
        let checksum = crc64::update(0, &file);
        file.extend(checksum.to_le_bytes());
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(TARGET);
    std::fs::write(&path, file).unwrap();
    let loaded = Data::load(&path);
    let (data, keys) = loaded.unwrap_or_else(|error| panic!("version {version}: {error}"));
    assert_eq!(keys, 7, "version {version}");
    data
}

/// A type byte, a one-letter key, and a body.
fn value(type_byte: u8, key: u8, body: &[u8]) -> Vec<u8> {
    [&[type_byte, 1, key], body].concat()
}

/// A list, a sorted set and a hash of "f" and 5, whose bodies begin so.
fn collections(list: (u8, &[u8]), sorted_set: (u8, &[u8]), hash: (u8, &[u8])) -> Vec<u8> {
    let values = [(b'l', list), (b'z', sorted_set), (b'h', hash)];
    values.map(|(key, (type_byte, body))| value(type_byte, key, body)).concat()
}

fn check(versions: &[u16], parts: &[&[u8]]) {
    let list = [b"\x01\x02", LISTPACK].concat();
    let newest = collections((18, &list), (17, LISTPACK), (16, LISTPACK));
    let sets = b"\x0b\x01i\x0c\x02\0\0\0\x02\0\0\0\x01\0\x05\0\
                 \x14\x01w\x0d\x0d\0\0\0\x02\0\x81a\x02\x81b\x02\xff";
    let newest = data_of(11, &[FIRST_DB, STRING, sets, &newest, VOLATILE_MS]);
    for version in versions {
        assert_eq!(data_of(*version, parts).digest(), newest.digest(), "version {version}");
    }
}

/// Redis 1 and 2.0: element by element, scores as text, expiry in seconds.
#[test]
fn elements_one_by_one() {
    let values =
        collections((1, b"\x02\x01f\xc0\x05"), (3, b"\x01\x01f\x015"), (4, b"\x01\x01f\xc0\x05"));
    check(&[1, 2, 3, 4, 5, 6], &[FIRST_DB, STRING, SETS, &values, VOLATILE_S]);
}

/// Redis 2.2 and 2.4.
#[test]
fn packed_values_and_zipmaps() {
    let values = collections((10, ZIPLIST), (12, ZIPLIST), (9, ZIPMAP));
    check(&[2, 3], &[FIRST_DB, STRING, INTSET_AND_SET, &values, VOLATILE_S]);
}

/// Redis 2.6 to 3.0: from version 5 on with a checksum.
#[test]
fn hashes_as_ziplists() {
    let values = collections((10, ZIPLIST), (12, ZIPLIST), (13, ZIPLIST));
    check(&[3, 4, 5, 6], &[FIRST_DB, STRING, INTSET_AND_SET, &values, VOLATILE_MS]);
}

/// Redis 3.2 to 6.2: lists of ziplists, scores as doubles, facts of the file, of a database and of
/// a key.
#[test]
fn facts_and_doubles() {
    let list = [b"\x01", ZIPLIST].concat();
    let score = [b"\x01\x01f", &5.0_f64.to_le_bytes()[..]].concat();
    let facts = b"\xfa\x09redis-ver\x056.2.0\xfe\0\xfb\x06\0";
    let old = collections((14, &list), (12, ZIPLIST), (13, ZIPLIST));
    check(&[7], &[facts, STRING, INTSET_AND_SET, &old, VOLATILE_MS]);
    let values = collections((14, &list), (5, &score), (13, ZIPLIST));
    check(&[8, 9], &[facts, STRING, INTSET_AND_SET, &values, VOLATILE_MS]);
    check(&[9], &[facts, b"\xf8\x0a", STRING, b"\xf9\x05", SETS, &values, VOLATILE_MS]);
}

#[test]
fn times_are_the_same_in_seconds_and_in_ms() {
    let seconds = u32::from_le_bytes(VOLATILE_S[3..7].try_into().unwrap());
    let ms = u64::from_le_bytes(VOLATILE_MS[3..11].try_into().unwrap());
    assert_eq!(u64::from(seconds) * 1000, ms);
}
