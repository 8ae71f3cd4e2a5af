//! What `cmsgpack` gives and how it fails, compared with the oracle.

use crate::testing::check_values;

#[test]
fn values_are_packed() {
    check_values(&[
        (
            "cmsgpack.pack(1,2,3), cmsgpack.pack(127), cmsgpack.pack(128), cmsgpack.pack(255), cmsgpack.pack(256), cmsgpack.pack(65535), cmsgpack.pack(65536)",
            r"\x01\x02\x03 \x7f \xcc\x80 \xcc\xff \xcd\x01\x00 \xcd\xff\xff \xce\x00\x01\x00\x00",
        ),
        (
            "cmsgpack.pack(-1), cmsgpack.pack(-32), cmsgpack.pack(-33), cmsgpack.pack(-128), cmsgpack.pack(-129), cmsgpack.pack(-32768), cmsgpack.pack(-32769), cmsgpack.pack(-2^31), cmsgpack.pack(-2^31-1)",
            r"\xff \xe0 \xd0\xdf \xd0\x80 \xd1\xff\x7f \xd1\x80\x00 \xd2\xff\xff\x7f\xff \xd2\x80\x00\x00\x00 \xd3\xff\xff\xff\xff\x7f\xff\xff\xff",
        ),
        (
            "cmsgpack.pack(2^32-1), cmsgpack.pack(2^32), cmsgpack.pack(2^53), cmsgpack.pack(2^62), cmsgpack.pack(2^63), cmsgpack.pack(-2^63), cmsgpack.pack(2^64)",
            r"\xce\xff\xff\xff\xff \xcf\x00\x00\x00\x01\x00\x00\x00\x00 \xcf\x00 \x00\x00\x00\x00\x00\x00 \xcf@\x00\x00\x00\x00\x00\x00\x00 \xca_\x00\x00\x00 \xd3\x80\x00\x00\x00\x00\x00\x00\x00 \xca_\x80\x00\x00",
        ),
        (
            "cmsgpack.pack(1.5), cmsgpack.pack(0.1), cmsgpack.pack(1e300), cmsgpack.pack(0/0), cmsgpack.pack(1/0), cmsgpack.pack(-0)",
            r"\xca?\xc0\x00\x00 \xcb?\xb9\x99\x99\x99\x99\x99\x9a \xcb~7\xe4<\x88\x00u\x9c \xcb\xff\xf8\x00\x00\x00\x00\x00\x00 \xca\x7f\x80\x00\x00 \x00",
        ),
        (
            "cmsgpack.pack(nil), cmsgpack.pack(true), cmsgpack.pack(false), cmsgpack.pack(function() end), cmsgpack.pack(cjson.null)",
            r"\xc0 \xc3 \xc2 \xc0 \xc0",
        ),
        (
            "cmsgpack.pack(''), cmsgpack.pack('abc'), cmsgpack.pack(string.rep('x',31)):sub(1,3), cmsgpack.pack(string.rep('x',32)):sub(1,4), cmsgpack.pack(string.rep('x',256)):sub(1,5), cmsgpack.pack(string.rep('x',65536)):sub(1,6)",
            r"\xa0 \xa3abc \xbfxx \xd9 xx \xda\x01\x00xx \xdb\x00\x01\x00\x00x",
        ),
        (
            "cmsgpack.pack({}), cmsgpack.pack({1,2}), cmsgpack.pack({a=1}), cmsgpack.pack({1,nil,3}), cmsgpack.pack({[2]=1}), cmsgpack.pack({[1.5]=1}), cmsgpack.pack({1,2,a=3}), cmsgpack.pack({function() end})",
            r"\x90 \x92\x01\x02 \x81\xa1a\x01 \x82\x01\x01\x03\x03 \x81\x02\x01 \x81\xca?\xc0\x00\x00\x01 \x83\x01\x01\x02\x02\xa1a\x03 \x91\xc0",
        ),
        (
            "local t={} for i=1,16 do t[i]=i end return cmsgpack.pack(t), cmsgpack.pack({a={b={1,{c=1.5}}}})",
            r"\xdc\x00\x10\x01\x02\x03\x04\x05\x06\x07\x08\t\n\x0b\x0c\r\x0e\x0f\x10 \x81\xa1a\x81\xa1b\x92\x01\x81\xa1c\xca?\xc0\x00\x00",
        ),
        (
            "local t={} t[1]=t return cmsgpack.pack(t)",
            r"\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\xc0",
        ),
        (
            "local t={} t.a=t return cmsgpack.pack(t)",
            r"\x81\xa1a\x81\xa1a\x81\xa1a\x81\xa1a\x81\xa1a\x81\xa1a\x81\xa1a\x81\xa1a\x81\xa1a\x81\xa1a\x81\xa1a\x81\xa1a\x81\xa1a\x81\xa1a\x81\xa1a\x81\xa1a\xc0",
        ),
        (
            "local t={} for i=1,15 do t={t} end return cmsgpack.pack(t)",
            r"\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x90",
        ),
        (
            "cmsgpack.pack()",
            r"error user_script:1: bad argument #0 to \'pack\' (MessagePack pack needs input.)",
        ),
    ]);
}

#[test]
fn bytes_are_unpacked() {
    check_values(BYTES_ARE_UNPACKED);
}

const BYTES_ARE_UNPACKED: &[(&str, &str)] = &[
    ("cmsgpack.unpack(cmsgpack.pack(1,2,'x',nil,true))", "1 2 x nil true"),
    ("cmsgpack.unpack('')", ""),
    ("cmsgpack.unpack(1)", "49"),
    (r"cmsgpack.unpack('\202\63\128\0\0'), cmsgpack.unpack('\203\63\248\0\0\0\0\0\0')", "1 1.5"),
    (
        r"cmsgpack.unpack('\204\255'), cmsgpack.unpack('\205\255\255'), cmsgpack.unpack('\206\255\255\255\255'), cmsgpack.unpack('\207\255\255\255\255\255\255\255\255'), cmsgpack.unpack('\207\127\255\255\255\255\255\255\255')",
        "255 65535 4294967295 -1 9.2233720368547758e+18",
    ),
    (
        r"cmsgpack.unpack('\208\255'), cmsgpack.unpack('\209\255\254'), cmsgpack.unpack('\210\255\255\255\0'), cmsgpack.unpack('\211\255\255\255\255\255\255\255\255'), cmsgpack.unpack('\224')",
        "-1 -2 -256 -1 -32",
    ),
    (
        r"cmsgpack.unpack('\220\0\2\1\2')[2], cmsgpack.unpack('\221\0\0\0\2\1\2')[2], cmsgpack.unpack('\222\0\1\161a\2').a, cmsgpack.unpack('\223\0\0\0\1\161a\2').a",
        "2 2 2 2",
    ),
    (
        r"cmsgpack.unpack('\217\1a'), cmsgpack.unpack('\218\0\1a'), cmsgpack.unpack('\219\0\0\0\1a')",
        "a a a",
    ),
    (
        r"#cmsgpack.unpack('\144'), #cmsgpack.unpack('\128'), cmsgpack.unpack('\145\129\1\146\144\5')[1][1][2]",
        "0 0 5",
    ),
    (r"cmsgpack.unpack('\146\192\1')[2], cmsgpack.unpack('\129\1\192')[1]", "1 nil"),
    (
        "cmsgpack.unpack()",
        r"error user_script:1: bad argument #1 to \'unpack\' (string expected, got no value)",
    ),
    (
        "cmsgpack.unpack({})",
        r"error user_script:1: bad argument #1 to \'unpack\' (string expected, got table)",
    ),
    (r"cmsgpack.unpack('\193')", "error user_script:1: Bad data format in input."),
    (r"cmsgpack.unpack('\1\193')", "error user_script:1: Bad data format in input."),
    (r"cmsgpack.unpack('\217')", "error user_script:1: Missing bytes in input."),
    (r"cmsgpack.unpack('\217\5abc')", "error user_script:1: Missing bytes in input."),
    (r"cmsgpack.unpack('\129')", "error user_script:1: Missing bytes in input."),
    (r"cmsgpack.unpack('\146\1')", "error user_script:1: Missing bytes in input."),
    (r"cmsgpack.unpack('\199\1\1a')", "error user_script:1: Bad data format in input."),
    (r"cmsgpack.unpack('\196\3abc')", "error user_script:1: Bad data format in input."),
    (r"cmsgpack.unpack('\221\255\255\255\255')", "error user_script:1: Missing bytes in input."),
    (r"cmsgpack.unpack('\223\255\255\255\255')", "error user_script:1: Missing bytes in input."),
    (r"cmsgpack.unpack('\219\255\255\255\255a')", "error user_script:1: Missing bytes in input."),
    (r"cmsgpack.unpack('\129\192\1')", "error table index is nil"),
    (r"cmsgpack.unpack('\129\192')", "error user_script:1: Missing bytes in input."),
    (r"cmsgpack.unpack('\129\203\127\248\0\0\0\0\0\0\1')", "error table index is NaN"),
    (r"type(cmsgpack.unpack(string.rep('\145',3000)..'\1'))", "table"),
    (
        r"cmsgpack.unpack(string.rep('\145',10000)..'\1')",
        "error user_script:1: stack overflow (in function mp_decode_to_lua_array)",
    ),
    (
        r"cmsgpack.unpack(string.rep('\129\1',10000)..'\1')",
        "error user_script:1: stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)",
    ),
    (
        r"cmsgpack.unpack(string.rep('\1',9000))",
        "error user_script:1: stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)",
    ),
    (r"select('#', cmsgpack.unpack(string.rep('\1',7000)))", "7000"),
    (r"cmsgpack.unpack_one('\1\2\3')", "1 1"),
    (r"cmsgpack.unpack_one('\1\2\3',1)", "2 2"),
    (r"cmsgpack.unpack_one('\1\2\3',2)", "-1 3"),
    (r"cmsgpack.unpack_one('\1\2\3',3)", "-1"),
    (
        r"cmsgpack.unpack_one('\1\2\3',4)",
        "error user_script:1: Start offset 4 greater than input length 3.",
    ),
    (
        r"cmsgpack.unpack_one('\1\2\3',-1)",
        "error user_script:1: Invalid request to unpack with offset of -1 and limit of 3.",
    ),
    ("cmsgpack.unpack_one('')", "-1"),
    (
        "cmsgpack.unpack_one()",
        r"error user_script:1: bad argument #1 to \'unpack_one\' (string expected, got no value)",
    ),
    (r"cmsgpack.unpack_limit('\1\2\3',2)", "2 1 2"),
    (r"cmsgpack.unpack_limit('\1\2\3',2,1)", "-1 2 3"),
    (r"cmsgpack.unpack_limit('\1\2\3',5)", "-1 1 2 3"),
    (r"cmsgpack.unpack_limit('\1\2\3',0)", "1 2 3"),
    (r"cmsgpack.unpack_limit('\1\2\3',0,1)", "1"),
    (
        r"cmsgpack.unpack_limit('\1\2\3',-1)",
        "error user_script:1: Invalid request to unpack with offset of 0 and limit of 3.",
    ),
    (r"cmsgpack.unpack_limit('\1\2\3',1,3)", "-1"),
    (
        r"cmsgpack.unpack_limit('\1\2\3',1,10)",
        "error user_script:1: Start offset 10 greater than input length 3.",
    ),
    (
        r"cmsgpack.unpack_limit('\1\2\3')",
        r"error user_script:1: bad argument #2 to \'unpack_limit\' (number expected, got no value)",
    ),
    (
        r"cmsgpack.unpack_limit('\1\2\3','x')",
        r"error user_script:1: bad argument #2 to \'unpack_limit\' (number expected, got string)",
    ),
];
