//! What `struct` gives and how it fails, compared with the oracle.

use crate::testing::check_values;

#[test]
fn values_are_packed() {
    check_values(VALUES_ARE_PACKED);
}

const VALUES_ARE_PACKED: &[(&str, &str)] = &[
    (
        "struct.pack('>bBhHlLiI',1,2,3,4,5,6,7,8)",
        r"\x01\x02\x00\x03\x00\x04\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x06\x00\x00\x00\x07\x00\x00\x00\x08",
    ),
    (
        "struct.pack('<i3',-2), struct.pack('>I3',0x010203), struct.pack('i1',5), struct.pack('i8',-1), struct.pack('I16',7), struct.pack('>i16',-1), struct.pack('i0',1)",
        r"\xfe\xff\xff \x01\x02\x03 \x05 \xff\xff\xff\xff\xff\xff\xff\xff \x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00 \x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff ",
    ),
    (
        "struct.pack('f',1.5), struct.pack('d',1.5), struct.pack('>d',1.5), struct.pack('>f',1.5), struct.pack('f',1e300), struct.pack('d','1.5')",
        r"\x00\x00\xc0? \x00\x00\x00\x00\x00\x00\xf8? ?\xf8\x00\x00\x00\x00\x00\x00 ?\xc0\x00\x00 \x00\x00\x80\x7f \x00\x00\x00\x00\x00\x00\xf8?",
    ),
    (
        r"struct.pack('s','abc'), struct.pack('c3','abcdef'), struct.pack('c0','abc'), struct.pack('c','abc'), struct.pack('s',1), struct.pack('s','a\0b')",
        r"abc\x00 abc abc a 1\x00 a\x00b\x00",
    ),
    (
        "struct.pack('x'), struct.pack('bxb',1,2), struct.pack(' b',1), struct.pack('b b',1,2), struct.pack('T',5), struct.pack('<!>b',1), struct.pack('b',1,2,3)",
        r"\x00 \x01\x00\x02 \x01 \x01\x02 \x05\x00\x00\x00\x00\x00\x00\x00 \x01 \x01",
    ),
    (
        "struct.pack('!4bi',1,2), struct.pack('!bi',1,2), struct.pack('!8bd',1,2), struct.pack('!2bi',1,2), struct.pack('!4bxi',1,2), struct.pack('!32bi',1,2)",
        r"\x01\x00\x00\x00\x02\x00\x00\x00 \x01\x00\x00\x00\x02\x00\x00\x00 \x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00@ \x01\x00\x02\x00\x00\x00 \x01\x00\x00\x00\x02\x00\x00\x00 \x01\x00\x00\x00\x02\x00\x00\x00",
    ),
    (
        "struct.pack('b',300), struct.pack('B',-1), struct.pack('h',70000), struct.pack('i',2^31), struct.pack('I',2^32), struct.pack('i',1.7), struct.pack('i',-1.7), struct.pack('l','0x10')",
        r", \xff p\x11 \x00\x00\x00\x80 \x00\x00\x00\x00 \x01\x00\x00\x00 \xff\xff\xff\xff \x10\x00\x00\x00\x00\x00\x00\x00",
    ),
    (
        "struct.pack('l',2^63), struct.pack('l',-2^63), struct.pack('l',1e300), struct.pack('l',2^64), struct.pack('l',2^63+2048), struct.pack('L',-1e300), struct.pack('L',0/0)",
        r"\x00\x00\x00\x00\x00\x00\x00\x80 \x00\x00\x00\x00\x00\x00\x00\x80 \x00\x00\x00\x00\x00\x00\x00\x00 \x00\x00\x00\x00\x00\x00\x00\x00 \x00\x08\x00\x00\x00\x00\x00\x80 \x00\x00\x00\x00\x00\x00\x00\x80 \x00\x00\x00\x00\x00\x00\x00\x80",
    ),
    ("struct.pack('i33',1)", "error user_script:1: integral size 33 is larger than limit of 32"),
    (
        "struct.pack('c5','abc')",
        r"error user_script:1: bad argument #3 to \'pack\' (string too short)",
    ),
    ("struct.pack('!3bi',1,2)", "error user_script:1: alignment 3 is not a power of 2"),
    ("struct.pack('!0bi',1,2)", "error user_script:1: alignment 0 is not a power of 2"),
    (
        "struct.pack('z','a')",
        r"error user_script:1: bad argument #1 to \'pack\' (invalid format option \'z\')",
    ),
    (
        "struct.pack('i','x')",
        r"error user_script:1: bad argument #2 to \'pack\' (number expected, got string)",
    ),
    (
        "struct.pack('i')",
        r"error user_script:1: bad argument #2 to \'pack\' (number expected, got nil)",
    ),
    (
        "struct.pack('s',nil)",
        r"error user_script:1: bad argument #2 to \'pack\' (string expected, got nil)",
    ),
    (
        "struct.pack('s')",
        r"error user_script:1: bad argument #2 to \'pack\' (string expected, got nil)",
    ),
    (
        "struct.pack()",
        r"error user_script:1: bad argument #1 to \'pack\' (string expected, got no value)",
    ),
    (
        "struct.pack(1)",
        r"error user_script:1: bad argument #1 to \'pack\' (invalid format option \'1\')",
    ),
    (
        "struct.pack('=b',1)",
        r"error user_script:1: bad argument #1 to \'pack\' (invalid format option \'=\')",
    ),
    ("struct.pack('i99999999999',1)", "error user_script:1: integral size overflow"),
    ("struct.pack('c2147483648','a')", "error user_script:1: integral size overflow"),
    (
        "struct.pack('i 3',1)",
        r"error user_script:1: bad argument #1 to \'pack\' (invalid format option \'3\')",
    ),
];

#[test]
fn bytes_are_unpacked() {
    check_values(BYTES_ARE_UNPACKED);
}

const BYTES_ARE_UNPACKED: &[(&str, &str)] = &[
    (r"struct.unpack('>bBhH','\1\2\0\3\0\4')", "1 2 3 4 7"),
    (
        r"struct.unpack('<i3','\254\255\255'), struct.unpack('>I3','\1\2\3'), struct.unpack('i0','abc')",
        "-2 66051 0 1",
    ),
    (
        r"struct.unpack('b','\255'), struct.unpack('B','\255'), struct.unpack('h','\255\255'), struct.unpack('H','\255\255'), struct.unpack('i','\255\255\255\255'), struct.unpack('I','\255\255\255\255')",
        "-1 255 -1 65535 -1 4294967295 5",
    ),
    (
        r"struct.unpack('l','\255\255\255\255\255\255\255\255'), struct.unpack('L','\255\255\255\255\255\255\255\255'), struct.unpack('L','\0\0\0\0\0\0\0\128'), struct.unpack('T','\1\0\0\0\0\0\0\0')",
        "-1 1.8446744073709552e+19 9.2233720368547758e+18 1 9",
    ),
    (
        r"struct.unpack('f','\0\0\192\63'), struct.unpack('>f','\63\192\0\0'), struct.unpack('>d','\63\248\0\0\0\0\0\0')",
        "1.5 1.5 1.5 9",
    ),
    (
        r"struct.unpack('i16',string.rep('\1',16)), struct.unpack('>i16',string.rep('\1',8)..string.rep('\2',8)), struct.unpack('i32',string.rep('\255',32))",
        "72340172838076672 1.4468034567615334e+17 -1 33",
    ),
    (r"struct.unpack('s','abc\0def')", "abc 5"),
    (r"struct.unpack('bs','\1abc\0')", "1 abc 6"),
    (r"struct.unpack('Bc0','\3abcdef')", "abc 5"),
    (r"struct.unpack('sc0','3\0abc')", "abc 6"),
    (r"struct.unpack('Bc0s','\1ab\0')", "a b 5"),
    ("struct.unpack('dc0',struct.pack('d',2)..'abc')", "ab 11"),
    ("struct.unpack('c3','abcdef')", "abc 4"),
    ("struct.unpack('c','abcdef')", "a 2"),
    ("struct.unpack('xb','ab')", "98 3"),
    ("struct.unpack('','')", "1"),
    ("struct.unpack(' ','ab')", "1"),
    ("struct.unpack('!4bi',struct.pack('!4bi',1,2))", "1 2 9"),
    ("struct.unpack('b','abc',2)", "98 3"),
    ("struct.unpack('','abc',4)", "4"),
    ("struct.unpack('i',1234)", "875770417 5"),
    ("struct.unpack('s','abc')", "error user_script:1: unfinished string in data"),
    ("struct.unpack('c0','abc')", r"error user_script:1: format \'c0\' needs a previous size"),
    (r"struct.unpack('sc0','x\0abc')", r"error user_script:1: format \'c0\' needs a previous size"),
    (
        "struct.unpack('c5','abc')",
        r"error user_script:1: bad argument #2 to \'unpack\' (data string too short)",
    ),
    (
        r"struct.unpack('Bc0','\9abc')",
        r"error user_script:1: bad argument #2 to \'unpack\' (data string too short)",
    ),
    (
        r"struct.unpack('bc0','\255abc')",
        r"error user_script:1: bad argument #2 to \'unpack\' (data string too short)",
    ),
    (
        "struct.unpack('dc0',struct.pack('d',-2)..'abc')",
        r"error user_script:1: bad argument #2 to \'unpack\' (data string too short)",
    ),
    (
        "struct.unpack('xxxx','ab')",
        r"error user_script:1: bad argument #2 to \'unpack\' (data string too short)",
    ),
    (
        "struct.unpack('i','abc')",
        r"error user_script:1: bad argument #2 to \'unpack\' (data string too short)",
    ),
    (
        "struct.unpack('i')",
        r"error user_script:1: bad argument #2 to \'unpack\' (string expected, got no value)",
    ),
    (
        "struct.unpack('b','abc',0)",
        r"error user_script:1: bad argument #3 to \'unpack\' (offset must be 1 or greater)",
    ),
    (
        "struct.unpack('b','abc',-1)",
        r"error user_script:1: bad argument #2 to \'unpack\' (data string too short)",
    ),
    (
        "struct.unpack('b','abc',4)",
        r"error user_script:1: bad argument #2 to \'unpack\' (data string too short)",
    ),
    (
        "struct.unpack('b','abc',2^31)",
        r"error user_script:1: bad argument #2 to \'unpack\' (data string too short)",
    ),
    (
        "struct.unpack('b','abc','x')",
        r"error user_script:1: bad argument #3 to \'unpack\' (number expected, got string)",
    ),
    (
        "struct.unpack('z','a')",
        r"error user_script:1: bad argument #1 to \'unpack\' (invalid format option \'z\')",
    ),
    (
        "struct.unpack('c2147483647','abc')",
        r"error user_script:1: bad argument #2 to \'unpack\' (data string too short)",
    ),
    ("struct.unpack('c99999999999','abc')", "error user_script:1: integral size overflow"),
    (
        "struct.unpack(string.rep('b',9000),string.rep('a',9000))",
        "error user_script:1: stack overflow (too many results)",
    ),
    (
        "struct.size('bhild'), struct.size('!bhild'), struct.size('!4bi'), struct.size('i3'), struct.size('c10'), struct.size('x'), struct.size('f'), struct.size('T'), struct.size(''), struct.size('z')",
        "23 24 8 3 10 1 4 8 0 0",
    ),
    (
        "struct.size('!bi16'), struct.size('!bi32'), struct.size('!16bi16'), struct.size('!16bi3'), struct.size('!4bi3'), struct.size('!bc3b'), struct.size('!bxi'), struct.size('!bf'), struct.size('c2147483647c2147483647')",
        "24 40 32 6 6 5 8 8 4294967294",
    ),
    (
        "struct.size('s')",
        r"error user_script:1: bad argument #1 to \'size\' (option \'s\' has no fixed size)",
    ),
    (
        "struct.size('c0')",
        r"error user_script:1: bad argument #1 to \'size\' (option \'c0\' has no fixed size)",
    ),
    (
        "struct.size()",
        r"error user_script:1: bad argument #1 to \'size\' (string expected, got no value)",
    ),
    ("struct.size('!3')", "error user_script:1: alignment 3 is not a power of 2"),
    (
        "struct.size('=')",
        r"error user_script:1: bad argument #1 to \'size\' (invalid format option \'=\')",
    ),
];
