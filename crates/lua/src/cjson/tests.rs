//! What `cjson` gives and how it fails, compared with the oracle.

use crate::testing::check_values;

#[test]
fn values_are_encoded() {
    check_values(VALUES_ARE_ENCODED);
}

const VALUES_ARE_ENCODED: &[(&str, &str)] = &[
    (
        "cjson.encode(1), cjson.encode(1.5), cjson.encode(1e15), cjson.encode(123456789012345), cjson.encode(1e100), cjson.encode(-0), cjson.encode(1/3)",
        "1 1.5 1e+15 1.2345678901234e+14 1e+100 -0 0.33333333333333",
    ),
    (
        "cjson.encode(12345678901234567890), cjson.encode(100000000000000), cjson.encode(99999999999999)",
        "1.2345678901235e+19 1e+14 99999999999999",
    ),
    (
        "cjson.encode(nil), cjson.encode(true), cjson.encode(false), cjson.encode(cjson.null), cjson.encode('x')",
        r#"null true false null \"x\""#,
    ),
    (
        r#"cjson.encode('a"b\\c/d\b\f\n\r\t\0\1\127\195\169')"#,
        r#"\"a\\\"b\\\\c\\/d\\b\\f\\n\\r\\t\\u0000\\u0001\\u007f\xc3\xa9\""#,
    ),
    (
        "cjson.encode({}), cjson.encode({1,2,3}), cjson.encode({1,nil,3}), cjson.encode({[1]=1,[5]=2}), cjson.encode({[10]=2})",
        "{} [1,2,3] [1,null,3] [1,null,null,null,2] [null,null,null,null,null,null,null,null,null,2]",
    ),
    (
        r"cjson.encode({[1.5]=2}), cjson.encode({[0]=2}), cjson.encode({[-1]=2}), cjson.encode({['\0']=1}), cjson.encode({[2^53]=1,a=1})",
        r#"{\"1.5\":2} {\"0\":2} {\"-1\":2} {\"\\u0000\":1} {\"9.007199254741e+15\":1,\"a\":1}"#,
    ),
    ("cjson.encode({a={b={c={1,{}}}}})", r#"{\"a\":{\"b\":{\"c\":[1,{}]}}}"#),
    ("cjson.encode({1,2,a=3})", r#"{\"1\":1,\"2\":2,\"a\":3}"#),
    ("cjson.encode(setmetatable({1,2},{__index=function() return 1 end}))", ""),
    (
        "cjson.encode({[1]=1,[25]=2})",
        "error user_script:1: Cannot serialise table: excessively sparse array",
    ),
    (
        "cjson.encode({[11]=2})",
        "error user_script:1: Cannot serialise table: excessively sparse array",
    ),
    (
        "cjson.encode({[true]=2})",
        "error user_script:1: Cannot serialise boolean: table key must be a number or string",
    ),
    (
        "cjson.encode(function() end)",
        "error user_script:1: Cannot serialise function: type not supported",
    ),
    (
        "cjson.encode({function() end})",
        "error user_script:1: Cannot serialise function: type not supported",
    ),
    (
        "cjson.encode(coroutine.create(function() end))",
        "error user_script:1: Cannot serialise thread: type not supported",
    ),
    ("cjson.encode(0/0)", "error user_script:1: Cannot serialise number: must not be NaN or Inf"),
    ("cjson.encode(1/0)", "error user_script:1: Cannot serialise number: must not be NaN or Inf"),
    ("cjson.encode()", r"error user_script:1: bad argument #1 to \'encode\' (expected 1 argument)"),
    (
        "cjson.encode(1,2)",
        r"error user_script:1: bad argument #1 to \'encode\' (expected 1 argument)",
    ),
    (
        "local t={} t[1]=t return cjson.encode(t)",
        "error user_script:1: Cannot serialise, excessive nesting (1001)",
    ),
    (
        "local t={} t.a=t return cjson.encode(t)",
        "error user_script:1: Cannot serialise, excessive nesting (1001)",
    ),
    ("pcall(cjson.encode)", r"false bad argument #1 to \'?\' (expected 1 argument)"),
];

#[test]
fn texts_are_decoded() {
    check_values(TEXTS_ARE_DECODED);
}

const TEXTS_ARE_DECODED: &[(&str, &str)] = &[
    (
        r#"cjson.decode('1'), cjson.decode(' [1.5e3]')[1], cjson.decode('-0'), cjson.decode('"x"'), cjson.decode('true'), cjson.decode('false')"#,
        "1 1500 -0 x true false",
    ),
    (
        r#"cjson.decode('null') == cjson.null, cjson.decode('[null]')[1], cjson.decode('{"1":2}')["1"], #cjson.decode('[]'), next(cjson.decode('{}'))"#,
        "true userdata 2 0 nil",
    ),
    (r#"cjson.decode('{"a" : [1, {"b":\n"c"}]}').a[2].b"#, "c"),
    (
        "cjson.decode('1e400'), cjson.decode('1e-400'), cjson.decode('1.'), cjson.decode(1), cjson.decode(1.5)",
        "inf 0 1 1 1.5",
    ),
    (
        "cjson.decode('0x10'), cjson.decode('inf'), cjson.decode('-Infinity'), cjson.decode('nan'), cjson.decode('NaN'), cjson.decode('+5'), cjson.decode('012'), cjson.decode('0x1p4'), cjson.decode('nan(x)')",
        "16 inf -inf nan nan 5 12 16 nan",
    ),
    (
        r#"cjson.decode('"\\u00e9\\u20ac\\ud83d\\ude00\\/\\b\\f\\n\\r\\t\\"\\\\"')"#,
        r#"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80/\x08\x0c\n\r\t\"\\"#,
    ),
    (r#"cjson.decode('"\\u0000"'):len(), cjson.decode('"a\nb\127\200"')"#, r"1 a\nb\x7f\xc8"),
    ("cjson.decode('')", "error user_script:1: Expected value but found T_END at character 1"),
    ("cjson.decode('  ')", "error user_script:1: Expected value but found T_END at character 3"),
    (
        "cjson.decode('1 2')",
        "error user_script:1: Expected the end but found T_NUMBER at character 3",
    ),
    (
        "cjson.decode('{')",
        "error user_script:1: Expected object key string but found T_END at character 2",
    ),
    (
        "cjson.decode('{1}')",
        "error user_script:1: Expected object key string but found T_NUMBER at character 2",
    ),
    (
        r#"cjson.decode('{"a"}')"#,
        "error user_script:1: Expected colon but found T_OBJ_END at character 5",
    ),
    (
        r#"cjson.decode('{"a":}')"#,
        "error user_script:1: Expected value but found T_OBJ_END at character 6",
    ),
    (
        r#"cjson.decode('{"a":1')"#,
        "error user_script:1: Expected comma or object end but found T_END at character 7",
    ),
    (
        r#"cjson.decode('{"a":1,}')"#,
        "error user_script:1: Expected object key string but found T_OBJ_END at character 8",
    ),
    (
        r#"cjson.decode('{"a":1 "b"}')"#,
        "error user_script:1: Expected comma or object end but found T_STRING at character 8",
    ),
    ("cjson.decode('[')", "error user_script:1: Expected value but found T_END at character 2"),
    (
        "cjson.decode('[1')",
        "error user_script:1: Expected comma or array end but found T_END at character 3",
    ),
    ("cjson.decode('[1,')", "error user_script:1: Expected value but found T_END at character 4"),
    (
        "cjson.decode('[1,]')",
        "error user_script:1: Expected value but found T_ARR_END at character 4",
    ),
    (
        "cjson.decode('[1 2]')",
        "error user_script:1: Expected comma or array end but found T_NUMBER at character 4",
    ),
    ("cjson.decode(']')", "error user_script:1: Expected value but found T_ARR_END at character 1"),
    (
        "cjson.decode('tru')",
        "error user_script:1: Expected value but found invalid token at character 1",
    ),
    (
        "cjson.decode('x')",
        "error user_script:1: Expected value but found invalid token at character 1",
    ),
    (
        r#"cjson.decode('"abc')"#,
        "error user_script:1: Expected value but found unexpected end of string at character 5",
    ),
    (
        r#"cjson.decode('"a\\x"')"#,
        "error user_script:1: Expected value but found invalid escape code at character 3",
    ),
    (
        r#"cjson.decode('"a\\')"#,
        "error user_script:1: Expected value but found invalid escape code at character 3",
    ),
    (
        r#"cjson.decode('"a\\u12"')"#,
        "error user_script:1: Expected value but found invalid unicode escape code at character 3",
    ),
    (
        r#"cjson.decode('"\\ud83d"')"#,
        "error user_script:1: Expected value but found invalid unicode escape code at character 2",
    ),
    (
        r#"cjson.decode('"\\ude00"')"#,
        "error user_script:1: Expected value but found invalid unicode escape code at character 2",
    ),
    (
        r#"cjson.decode('"\\ud83dx"')"#,
        "error user_script:1: Expected value but found invalid unicode escape code at character 2",
    ),
    (
        r#"cjson.decode('"\\ud83d\\u0041"')"#,
        "error user_script:1: Expected value but found invalid unicode escape code at character 2",
    ),
    (
        "cjson.decode('-')",
        "error user_script:1: Expected value but found invalid number at character 1",
    ),
    (
        "cjson.decode('.5')",
        "error user_script:1: Expected value but found invalid token at character 1",
    ),
    (
        "cjson.decode('1e')",
        "error user_script:1: Expected the end but found invalid token at character 2",
    ),
    (
        "cjson.decode('1x')",
        "error user_script:1: Expected the end but found invalid token at character 2",
    ),
    (
        "cjson.decode('infinit')",
        "error user_script:1: Expected the end but found invalid token at character 4",
    ),
    (
        "cjson.decode('0x')",
        "error user_script:1: Expected the end but found invalid token at character 2",
    ),
    (r"cjson.decode('a\0b')", "error user_script:1: JSON parser does not support UTF-16 or UTF-32"),
    (r"cjson.decode('\0\0')", "error user_script:1: JSON parser does not support UTF-16 or UTF-32"),
    (r"cjson.decode('\0')", "error user_script:1: Expected value but found T_END at character 1"),
    (
        r"cjson.decode('[1\0]')",
        "error user_script:1: Expected comma or array end but found T_END at character 3",
    ),
    (r"cjson.decode('12 \0 2')", "12"),
    (
        r#"cjson.decode('"a\0b"')"#,
        "error user_script:1: Expected value but found unexpected end of string at character 3",
    ),
    ("cjson.decode(':')", "error user_script:1: Expected value but found T_COLON at character 1"),
    ("cjson.decode(',')", "error user_script:1: Expected value but found T_COMMA at character 1"),
    (
        r#"cjson.decode('{"a":1}x')"#,
        "error user_script:1: Expected the end but found invalid token at character 8",
    ),
    (
        "cjson.decode('[1]]')",
        "error user_script:1: Expected the end but found T_ARR_END at character 4",
    ),
    (
        "cjson.decode('[true false]')",
        "error user_script:1: Expected comma or array end but found T_BOOLEAN at character 7",
    ),
    (
        "cjson.decode('[1 null]')",
        "error user_script:1: Expected comma or array end but found T_NULL at character 4",
    ),
    (
        "cjson.decode('[1 {')",
        "error user_script:1: Expected comma or array end but found T_OBJ_BEGIN at character 4",
    ),
    (
        "cjson.decode('[1 [')",
        "error user_script:1: Expected comma or array end but found T_ARR_BEGIN at character 4",
    ),
    ("cjson.decode()", r"error user_script:1: bad argument #1 to \'decode\' (expected 1 argument)"),
    (
        "cjson.decode('1',2)",
        r"error user_script:1: bad argument #1 to \'decode\' (expected 1 argument)",
    ),
    (
        "cjson.decode(nil)",
        r"error user_script:1: bad argument #1 to \'decode\' (string expected, got nil)",
    ),
    (
        "cjson.decode({})",
        r"error user_script:1: bad argument #1 to \'decode\' (string expected, got table)",
    ),
    (
        "cjson.decode(string.rep('[',1001)..string.rep(']',1001))",
        "error user_script:1: Found too many nested data structures (1001) at character 1001",
    ),
    ("type(cjson.decode(string.rep('[',1000)..string.rep(']',1000)))", "table"),
    ("pcall(cjson.decode)", r"false bad argument #1 to \'?\' (expected 1 argument)"),
];

#[test]
fn options() {
    check_values(OPTIONS);
}

const OPTIONS: &[(&str, &str)] = &[
    (
        "local c = cjson.new() c.encode_max_depth(5) local t={{{{{{1}}}}}} return c.encode(t)",
        "error user_script:1: Cannot serialise, excessive nesting (6)",
    ),
    (
        "local c = cjson.new() return c.encode_max_depth(7), c.encode_max_depth(nil), c.encode_max_depth()",
        "7 7 7",
    ),
    (
        "local c = cjson.new() return c.encode_max_depth(0)",
        r"error user_script:1: bad argument #1 to \'encode_max_depth\' (expected integer between 1 and 2147483647)",
    ),
    (
        "local c = cjson.new() return c.encode_max_depth('x')",
        r"error user_script:1: bad argument #1 to \'encode_max_depth\' (number expected, got string)",
    ),
    (
        "local c = cjson.new() return c.encode_max_depth(1,2)",
        r"error user_script:1: bad argument #2 to \'encode_max_depth\' (found too many arguments)",
    ),
    (
        "local c = cjson.new() c.decode_max_depth(3) return c.decode('[[[[1]]]]')",
        "error user_script:1: Found too many nested data structures (4) at character 4",
    ),
    ("local c = cjson.new() return c.decode_max_depth('9')", "9"),
    (
        "local c = cjson.new() return c.encode_number_precision(3), c.encode(3.14159), c.encode(123456)",
        "3 3.14 1.23e+05",
    ),
    (
        "local c = cjson.new() return c.encode_number_precision(0)",
        r"error user_script:1: bad argument #1 to \'encode_number_precision\' (expected integer between 1 and 14)",
    ),
    (
        "local c = cjson.new() return c.encode_number_precision(15)",
        r"error user_script:1: bad argument #1 to \'encode_number_precision\' (expected integer between 1 and 14)",
    ),
    (
        "local c = cjson.new() return c.encode_keep_buffer(), c.encode_keep_buffer(false), c.encode_keep_buffer('on')",
        "true false true",
    ),
    (
        "local c = cjson.new() return c.encode_keep_buffer(1)",
        r"error user_script:1: bad argument #1 to \'encode_keep_buffer\' (invalid option \'1\')",
    ),
    (
        "local c = cjson.new() return c.encode_keep_buffer('x')",
        r"error user_script:1: bad argument #1 to \'encode_keep_buffer\' (invalid option \'x\')",
    ),
    (
        "local c = cjson.new() return c.encode_invalid_numbers(), c.encode_invalid_numbers(true), c.encode(1/0), c.encode(0/0), c.encode(-1/0), c.encode_invalid_numbers('off')",
        "false true inf nan -inf false",
    ),
    (
        "local c = cjson.new() return c.encode_invalid_numbers('null'), c.encode(1/0), c.encode(0/0), c.encode_invalid_numbers()",
        "null null null null",
    ),
    (
        "local c = cjson.new() return c.encode_invalid_numbers('x')",
        r"error user_script:1: bad argument #1 to \'encode_invalid_numbers\' (invalid option \'x\')",
    ),
    (
        "local c = cjson.new() return c.encode_sparse_array(), c.encode_sparse_array(true)",
        "false true 2 10",
    ),
    (
        "local c = cjson.new() c.encode_sparse_array(true) return c.encode({[100]=1}), c.encode_sparse_array(nil,3,5)",
        r#"{\"100\":1} true 3 5"#,
    ),
    (
        "local c = cjson.new() return c.encode_sparse_array(false, 0), c.encode({[20]=1})",
        "false [null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,1]",
    ),
    (
        "local c = cjson.new() return c.encode_sparse_array(false, 2, 30), c.encode({[20]=1})",
        "false [null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,1]",
    ),
    (
        "local c = cjson.new() return c.encode_sparse_array(1)",
        r"error user_script:1: bad argument #1 to \'encode_sparse_array\' (invalid option \'1\')",
    ),
    (
        "local c = cjson.new() return c.encode_sparse_array(false,-1)",
        r"error user_script:1: bad argument #1 to \'encode_sparse_array\' (expected integer between 0 and 2147483647)",
    ),
    (
        "local c = cjson.new() return c.encode_sparse_array(false,2,-1)",
        r"error user_script:1: bad argument #1 to \'encode_sparse_array\' (expected integer between 0 and 2147483647)",
    ),
    (
        "local c = cjson.new() return c.encode_sparse_array(false,'x')",
        r"error user_script:1: bad argument #2 to \'encode_sparse_array\' (number expected, got string)",
    ),
    (
        "local c = cjson.new() return c.encode_sparse_array(false,2,10,4)",
        r"error user_script:1: bad argument #4 to \'encode_sparse_array\' (found too many arguments)",
    ),
    (
        "local c = cjson.new() return c.decode_invalid_numbers(), c.decode_invalid_numbers(false), c.decode('[-1]')[1], c.decode('[0.5]')[1]",
        "true false -1 0.5",
    ),
    (
        "local c = cjson.new() c.decode_invalid_numbers(false) return c.decode('0x10')",
        "error user_script:1: Expected value but found invalid number at character 1",
    ),
    (
        "local c = cjson.new() c.decode_invalid_numbers(false) return c.decode('[01]')",
        "error user_script:1: Expected value but found invalid number at character 2",
    ),
    (
        "local c = cjson.new() c.decode_invalid_numbers(false) return c.decode('[inf]')",
        "error user_script:1: Expected value but found invalid token at character 2",
    ),
    (
        "local c = cjson.new() c.decode_invalid_numbers(false) return c.decode('+1')",
        "error user_script:1: Expected value but found invalid token at character 1",
    ),
    (
        "local c = cjson.new() return c._NAME, c._VERSION, c.encode_max_depth(3), cjson.encode_max_depth()",
        "cjson 2.1.0 3 1000",
    ),
];
