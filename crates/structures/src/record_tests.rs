//! Records: what goes in comes out, wherever it stands.

use super::*;
use proptest::prelude::*;

type Text = Record<String>;

#[test]
fn a_small_record_has_eight_bytes_of_overhead() {
    let record = Text::new(&[b'k'; 16], 3, NewBody::Bytes(&[b'v'; 64]), None);
    assert_eq!(record.borrow().allocated_bytes(), 88);
    let record = Text::new(&[b'k'; 16], 3, NewBody::Bytes(&[b'v'; 64]), Some(1));
    assert_eq!(record.borrow().allocated_bytes(), 96);
}

#[test]
fn an_object_moves_with_its_record() {
    let record = Text::new(b"a", 1, NewBody::Object(Box::new("text".into())), None);
    let mut record = record.rebuilt(&[7; 300], Some(9));
    record.set_parts_expire(true);
    let record = record.rebuilt(&[7; 300], Some(9));
    assert_eq!(record.borrow().key(), &[7; 300]);
    assert!(record.borrow().parts_expire());
    assert_eq!(record.borrow().expiry_ms(), Some(9));
    assert!(matches!(record.borrow().body(), Body::Object(text) if text == "text"));
    assert_eq!(record.into_object().ok().as_deref().map(String::as_str), Some("text"));
}

#[test]
fn a_trailer_stays_with_its_record_and_away_from_the_value() {
    let trailer = *b"thirteen byte";
    for (key, len) in [(1usize, 0usize), (16, 5), (300, 64), (8, 3000)] {
        let (key, value) = (vec![b'k'; key], vec![b'v'; len]);
        let new = NewBody::Bytes(&value);
        let mut record = Text::with_trailer(&key, 1, new, Some(5), Some(&trailer));
        assert!(!record.borrow_mut().try_write(&value) && !record.borrow().is_marked());
        record.borrow_mut().set_marked(true);
        let mut record = record.rebuilt(&key, None);
        assert!(record.borrow().is_marked());
        assert_eq!(record.borrow().trailer(), Some(trailer));
        assert!(record.borrow_mut().set_trailer(&[7; TRAILER_BYTES]));
        assert_eq!(record.borrow().trailer(), Some([7; TRAILER_BYTES]));
        assert!(matches!(record.borrow().body(), Body::Bytes(bytes) if bytes == value));
        assert_eq!(record.borrow().key(), key);
    }
    let plain = Text::new(b"a", 1, NewBody::Object(Box::new("text".into())), None);
    assert_eq!(plain.borrow().trailer(), None);
    let mut trailed = plain.trailed(&trailer);
    assert!(trailed.borrow_mut().set_trailer(&trailer));
    assert!(matches!(trailed.borrow().body(), Body::Object(text) if text == "text"));
}

proptest! {
    #[test]
    fn edits_in_place(
        key in prop::collection::vec(any::<u8>(), 0..600),
        mut value in prop::collection::vec(any::<u8>(), 0..3000),
        len in 0..3000usize,
        byte: u8,
    ) {
        let mut record = Text::new(&key, 1, NewBody::Bytes(&value), None);
        let room = record.borrow().allocated_bytes();
        let longer = len.max(value.len());
        let stays = record.borrow_mut().try_edit(len, |bytes| {
            assert_eq!(bytes.len(), longer);
            assert!(bytes[value.len()..].iter().all(|byte| *byte == 0));
            bytes.fill(byte);
        });
        if stays {
            value = vec![byte; len];
        } else {
            let other = Text::new(&key, 1, NewBody::Bytes(&vec![0; len]), None);
            prop_assert_ne!(other.borrow().allocated_bytes(), room);
        }
        prop_assert_eq!(record.borrow().key(), &key[..]);
        prop_assert_eq!(record.borrow().allocated_bytes(), room);
        prop_assert!(matches!(record.borrow().body(), Body::Bytes(bytes) if bytes == value));
    }

    #[test]
    fn what_goes_in_comes_out(
        key in prop::collection::vec(any::<u8>(), 0..600),
        value in prop::collection::vec(any::<u8>(), 0..3000),
        second in prop::collection::vec(any::<u8>(), 0..3000),
        expiry in any::<Option<u64>>(),
        tag: u8,
        clock in 0u32..1 << 24,
    ) {
        let mut record = Text::new(&key, tag, NewBody::Bytes(&value), expiry);
        record.borrow_mut().set_clock(clock);
        let fits = record.borrow_mut().try_write(&second);
        let expected = if fits { &second } else { &value };
        let record = record.rebuilt(&key, expiry.map(|ms| ms ^ 1));
        let view = record.borrow();
        prop_assert_eq!(view.key(), &key[..]);
        prop_assert_eq!(view.tag(), tag);
        prop_assert_eq!(view.clock(), clock);
        prop_assert_eq!(view.expiry_ms(), expiry.map(|ms| ms ^ 1));
        prop_assert!(matches!(view.body(), Body::Bytes(bytes) if bytes == &expected[..]));
    }
}
