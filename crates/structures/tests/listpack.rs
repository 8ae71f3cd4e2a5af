//! Listpacks against bytes that Redis 7.0.15 made (DUMP, `rdbcompression no`), and random edits
//! against a vector of byte strings.

use kvasir_structures::listpack::{
    Element, Listpack, ListpackError, ListpackRef, SIZE_MIN, replace_in_place, validate,
};
use proptest::prelude::*;

fn unhex(hex: &str) -> Vec<u8> {
    let nibble = |byte: u8| (byte as char).to_digit(16).expect("hex") as u8;
    hex.as_bytes().chunks(2).map(|pair| (nibble(pair[0]) << 4) | nibble(pair[1])).collect()
}

fn texts(listpack: ListpackRef<'_>) -> Vec<Vec<u8>> {
    listpack.iter().map(Element::to_vec).collect()
}

fn check_same_bytes(listpack: &Listpack, redis: &[u8]) {
    assert_eq!(
        listpack.view().bytes().escape_ascii().to_string(),
        redis.escape_ascii().to_string()
    );
    assert_eq!(validate(redis), Ok(()));
}

/// HSET h f0 0 f1 127 ...: integers at the limits of every encoding, then texts that are none.
#[test]
fn a_hash_of_redis() {
    let redis = unhex(concat!(
        "400100003e00826630030001826631037f0182663203c0800282663303dfff0282663403cfff0282663503d0",
        "000282663603f100100382663703f1ffef0382663803f1ff7f0382663903f10080038366313004f200800004",
        "8366313104f2ff7fff048366313204f2ffff7f048366313304f2000080048366313404f30000800005836631",
        "3504f3ffff7fff058366313604f3ffffff7f058366313704f300000080058366313804f40000008000000000",
        "098366313904f4ffffff7fffffffff098366323004f4ffffffffffffff7f098366323104f400000000000000",
        "8009836632320480018366323304812d028366323404822d30038366323504822b3103836632360482303103",
        "836632370483312e350483663238048220310383663239049339323233333732303336383534373735383038",
        "1483663330048361626304ff",
    ));
    let values = [
        "0",
        "127",
        "128",
        "-1",
        "4095",
        "-4096",
        "4096",
        "-4097",
        "32767",
        "-32768",
        "32768",
        "-32769",
        "8388607",
        "-8388608",
        "8388608",
        "-8388609",
        "2147483647",
        "-2147483648",
        "2147483648",
        "-2147483649",
        "9223372036854775807",
        "-9223372036854775808",
        "",
        "-",
        "-0",
        "+1",
        "01",
        "1.5",
        " 1",
        "9223372036854775808",
        "abc",
    ];
    let fields: Vec<String> = (0..values.len()).map(|index| format!("f{index}")).collect();
    let mut listpack = Listpack::new();
    for (field, value) in fields.iter().zip(values) {
        listpack.push_back(field);
        listpack.push_back(value);
    }
    check_same_bytes(&listpack, &redis);

    let hash = ListpackRef::new(&redis);
    for (field, value) in fields.iter().zip(values) {
        let position = hash.find(hash.start(), field.as_bytes(), 1).expect("the field");
        let element = hash.at(hash.after(position));
        assert!(element.is(value.as_bytes()), "{element:?} {value}");
        assert_eq!(element.text_len(), value.len());
    }
    assert_eq!(hash.find(hash.start(), b"127", 1), None, "a value is no field");
}

/// ZADD z 1.5 a -2 b 1e100 c 17 17 inf z.
#[test]
fn a_sorted_set_of_redis() {
    let redis = unhex(
        "2c0000000a00816202dffe0281610283312e3504110111018163028631652b31303007817a0283696e6604ff",
    );
    let zset = ["b", "-2", "a", "1.5", "17", "17", "c", "1e+100", "z", "inf"];
    check_same_bytes(&zset.iter().collect(), &redis);
}

/// RPUSH l a xxx... 7: lengths of strings and of entries around every limit.
#[test]
fn long_strings_of_redis() {
    let cases = [
        (63, "4d0000000300816102bf", "400701ff"),
        (64, "4f0000000300816102e040", "420701ff"),
        (125, "8c0000000300816102e07d", "7f0701ff"),
        (126, "8e0000000300816102e07e", "01800701ff"),
        (127, "8f0000000300816102e07f", "01810701ff"),
        (4095, "0f1000000300816102efff", "20810701ff"),
        (4096, "131000000300816102f000100000", "20850701ff"),
        (16376, "0b4000000300816102f0f83f0000", "7ffd0701ff"),
        (16377, "0c4000000300816102f0f93f0000", "7ffe0701ff"),
        (16378, "0e4000000300816102f0fa3f0000", "00ffff0701ff"),
        (16379, "0f4000000300816102f0fb3f0000", "0180800701ff"),
        (20000, "344e00000300816102f0204e0000", "019ca50701ff"),
    ];
    for (len, before, behind) in cases {
        let long = vec![b'x'; len];
        let redis = [unhex(before), long.clone(), unhex(behind)].concat();
        let listpack: Listpack = [&b"a"[..], &long, b"7"].into_iter().collect();
        check_same_bytes(&listpack, &redis);
        let backwards: Vec<_> = listpack.view().iter().rev().map(Element::to_vec).collect();
        assert_eq!(backwards, [b"7".to_vec(), long, b"a".to_vec()]);
    }
}

/// LINSERT, LSET, LREM, LPUSH and LTRIM on e0 ... e9.
#[test]
fn an_edited_list_of_redis() {
    let mut list: Listpack = (0..10).map(|n| format!("e{n}")).collect::<Vec<_>>().iter().collect();
    let e5 = list.view().find(list.view().start(), b"e5", 0).expect("e5");
    list.insert(e5, 42);
    let last = list.view().seek(-1).expect("an element");
    list.replace(last, &vec![b'y'; 130]);
    list.remove_range(0, 1);
    list.push_front("-70000");
    list.remove_range(8, usize::MAX);
    let redis = "260000000800f290eefe04826531038265320382653303826534032a018265350382653603ff";
    check_same_bytes(&list, &unhex(redis));
}

#[test]
fn a_count_that_does_not_fit_is_unknown() {
    let mut list: Listpack = (0..65_534).collect();
    assert_eq!(list.view().bytes()[4..6], [0xFE, 0xFF]);
    list.push_back(1);
    list.push_back(2);
    assert_eq!((list.len(), &list.view().bytes()[4..6]), (65_536, &[0xFF, 0xFF][..]));
    assert_eq!(validate(list.view().bytes()), Ok(()));
    assert_eq!(list.view().get(-1), Some(Element::Int(2)));
    assert_eq!(list.view().get(65_535), Some(Element::Int(2)));
    assert_eq!((list.view().get(65_536), list.view().get(-65_537)), (None, None));
    list.remove_range(0, 10);
    assert_eq!((list.len(), &list.view().bytes()[4..6]), (65_526, &[0xFF, 0xFF][..]));
}

#[test]
fn counters_are_replaced_in_place() {
    let mut bytes = Listpack::from_iter(["n", "200"]).into_bytes();
    let at = ListpackRef::new(&bytes).seek(1).expect("the value");
    assert!(!replace_in_place(&mut bytes, at, Element::Int(1_000_000)));
    assert!(!replace_in_place(&mut bytes, at, Element::Int(101)), "101 takes a byte less");
    assert!(replace_in_place(&mut bytes, at, Element::Int(1001)));
    assert_eq!(texts(ListpackRef::new(&bytes)), [&b"n"[..], b"1001"]);
}

#[test]
fn what_is_wrong_is_named() {
    let sound = Listpack::from_iter(["ab", "300"]).into_bytes();
    assert_eq!(sound.len(), SIZE_MIN + 4 + 3);
    let cases: &[(usize, u8, ListpackError)] = &[
        (0, 9, ListpackError::Size { header: 9, actual: 14 }),
        (4, 3, ListpackError::Count { header: 3, actual: 2 }),
        (6, 0xF5, ListpackError::Entry { offset: 6 }),
        (6, 0xBF, ListpackError::Entry { offset: 6 }),
        (6, 0xF0, ListpackError::Entry { offset: 6 }),
        (6, 0xFF, ListpackError::Terminator { offset: 6 }),
        (9, 7, ListpackError::Backlen { offset: 6 }),
        (13, 0, ListpackError::Backlen { offset: 13 }),
    ];
    for &(offset, byte, error) in cases {
        let mut broken = sound.clone();
        broken[offset] = byte;
        assert_eq!(validate(&broken), Err(error), "{error}");
    }
    assert_eq!(validate(&sound[..6]), Err(ListpackError::Length { actual: 6 }));
    assert_eq!(validate(&[]), Err(ListpackError::Length { actual: 0 }));
}

/// An edit by indexes, which are taken modulo what there is.
#[derive(Debug, Clone)]
enum Edit {
    PushBack(Vec<u8>),
    PushFront(Vec<u8>),
    Insert(usize, Vec<u8>),
    InsertAfter(usize, Vec<u8>),
    Replace(usize, Vec<u8>),
    Remove(usize, usize),
    Splice(usize, usize, Vec<Vec<u8>>),
    SplitAndJoin(usize),
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..8),
        4 => any::<i64>().prop_map(|int| int.to_string().into_bytes()),
        4 => (-40_000_i64..40_000).prop_map(|int| int.to_string().into_bytes()),
        2 => "[-+0-9]{0,4}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 60..140),
        1 => (4_090_usize..17_000).prop_map(|len| vec![b'x'; len]),
    ]
}

fn edit() -> impl Strategy<Value = Edit> {
    let index = any::<usize>;
    prop_oneof![
        3 => value().prop_map(Edit::PushBack),
        2 => value().prop_map(Edit::PushFront),
        1 => (index(), value()).prop_map(|(index, value)| Edit::Insert(index, value)),
        1 => (index(), value()).prop_map(|(index, value)| Edit::InsertAfter(index, value)),
        1 => (index(), value()).prop_map(|(index, value)| Edit::Replace(index, value)),
        1 => (index(), 0..4_usize).prop_map(|(index, count)| Edit::Remove(index, count)),
        1 => (index(), 0..3_usize, prop::collection::vec(value(), 0..4))
            .prop_map(|(index, count, values)| Edit::Splice(index, count, values)),
        1 => index().prop_map(Edit::SplitAndJoin),
    ]
}

fn apply(listpack: &mut Listpack, model: &mut Vec<Vec<u8>>, edit: Edit) {
    let len = model.len();
    let position = |listpack: &Listpack, index: usize| {
        if index == len {
            listpack.view().end()
        } else {
            listpack.view().seek(index as i64).expect("an index below the length")
        }
    };
    match edit {
        Edit::PushBack(value) => {
            listpack.push_back(&value);
            model.push(value);
        }
        Edit::PushFront(value) => {
            listpack.push_front(&value);
            model.insert(0, value);
        }
        Edit::Insert(index, value) => {
            let index = index % (len + 1);
            listpack.insert(position(listpack, index), &value);
            model.insert(index, value);
        }
        Edit::InsertAfter(index, value) if len > 0 => {
            let index = index % len;
            listpack.insert_after(position(listpack, index), &value);
            model.insert(index + 1, value);
        }
        Edit::Replace(index, value) if len > 0 => {
            let index = index % len;
            listpack.replace(position(listpack, index), &value);
            model[index] = value;
        }
        Edit::Remove(index, count) => {
            let index = index % (len + 1);
            listpack.remove(position(listpack, index), count);
            model.drain(index..(index + count).min(len));
        }
        Edit::Splice(index, count, values) => {
            let start = index % (len + 1);
            let end = (start + count).min(len);
            let range = position(listpack, start)..position(listpack, end);
            let elements: Vec<Element> = values.iter().map(Element::from).collect();
            let elsewhere = listpack.view().splice(range.clone(), &elements).to_vec();
            listpack.splice(range, &elements);
            assert_eq!(listpack.view().bytes(), elsewhere);
            model.splice(start..end, values);
        }
        Edit::SplitAndJoin(index) => {
            let view = listpack.view();
            let at = position(listpack, index % (len + 1));
            let mut joined = view.copy_range(view.start()..at);
            let rest = view.copy_range(at..view.end());
            joined.extend_from(rest.view(), rest.view().start()..rest.view().end());
            assert_eq!(&joined, listpack);
        }
        Edit::InsertAfter(..) | Edit::Replace(..) => {}
    }
}

fn check_against(listpack: &Listpack, model: &[Vec<u8>]) {
    let view = listpack.view();
    assert_eq!(validate(view.bytes()), Ok(()));
    assert_eq!((view.len(), view.is_empty()), (model.len(), model.is_empty()));
    assert_eq!(texts(view), model);
    let backwards: Vec<_> = view.iter().rev().map(Element::to_vec).collect();
    assert!(backwards.iter().eq(model.iter().rev()));
    for (index, value) in model.iter().enumerate() {
        assert!(view.get(index as i64).is_some_and(|element| element.is(value)));
        assert_eq!(view.get(index as i64), view.get(index as i64 - model.len() as i64));
        let first = model.iter().position(|other| other == value).expect("itself");
        assert_eq!(view.find(view.start(), value, 0), view.seek(first as i64));
    }
    assert_eq!(view.get(model.len() as i64), None);
    assert_eq!(view.get(-1 - model.len() as i64), None);
    assert_eq!(listpack, &model.iter().collect(), "one content, one encoding");
}

proptest! {
    #[test]
    fn edits_agree_with_a_vector(edits in prop::collection::vec(edit(), 0..40)) {
        let (mut listpack, mut model) = (Listpack::new(), Vec::new());
        for edit in edits {
            apply(&mut listpack, &mut model, edit);
        }
        check_against(&listpack, &model);
    }

    #[test]
    fn validate_does_not_panic_and_what_it_passes_can_be_walked(
        values in prop::collection::vec(value(), 0..6),
        damage in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4),
        cut in prop::option::weighted(0.2, any::<usize>()),
    ) {
        let mut bytes = values.iter().collect::<Listpack>().into_bytes();
        for (offset, byte) in damage {
            let offset = offset % bytes.len();
            bytes[offset] = byte;
        }
        bytes.truncate(cut.map_or(bytes.len(), |cut| cut % bytes.len()));
        if let Ok(listpack) = Listpack::from_bytes(bytes) {
            let forwards = texts(listpack.view());
            let backwards: Vec<_> = listpack.view().iter().rev().map(Element::to_vec).collect();
            prop_assert!(forwards.iter().eq(backwards.iter().rev()));
        }
    }

    #[test]
    fn validate_survives_noise(noise in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = validate(&noise);
        let mut framed = noise;
        framed.push(0xFF);
        let size = (framed.len() + 6) as u32;
        framed.splice(0..0, size.to_le_bytes().into_iter().chain([0xFF, 0xFF]));
        if validate(&framed).is_ok() {
            ListpackRef::new(&framed).iter().for_each(|element| assert!(element.stored_size() > 1));
        }
    }
}
