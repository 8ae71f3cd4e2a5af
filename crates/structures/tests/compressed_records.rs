//! Compressed texts in records are counted for as long as the records live. In a process of its
//! own, since the counts are the process's.

use kvasir_structures::compressed::{Algorithm, Compressed, CompressedRef, Counts, compress};
use kvasir_structures::record::{Body, NewBody, Record};

fn held() -> (u64, u64, u64) {
    let counts = Counts::now();
    (counts.held, counts.text_bytes, counts.bytes)
}

type Text = Record<Compressed>;

#[test]
fn what_is_held_is_counted_until_it_is_freed() {
    let text = b"one after the other ".repeat(40);
    let bytes = compress(Algorithm::Lz4, &text).expect("it pays");
    let of = |count: u64| (count, count * text.len() as u64, count * bytes.len() as u64);

    let mut record = Text::new(b"key", 3, NewBody::Compressed(&bytes), None);
    assert_eq!(held(), of(1));
    assert!(!record.borrow_mut().try_write(b"other"), "it is not changed in place");
    assert!(!record.borrow_mut().try_edit(5, |_| unreachable!()));
    let record = record.rebuilt(b"another key", Some(7));
    assert_eq!(held(), of(1));
    let copy = Text::new(b"copy", 3, record.borrow().inline_body(), None);
    assert_eq!(held(), of(2));
    let Body::Bytes(kept) = copy.borrow().body() else { panic!("it is inline") };
    assert_eq!(CompressedRef::new(kept).to_vec(), text);
    drop(record);
    assert_eq!(held(), of(1));

    let object = Box::new(Compressed::new(&bytes));
    let beside = Text::new(b"beside", 3, NewBody::Object(object), None);
    assert_eq!(held(), of(2));
    let beside = beside.rebuilt(b"elsewhere", None);
    let freed = std::thread::spawn(move || drop(beside));
    freed.join().unwrap();
    drop(copy);
    assert_eq!(held(), of(0));
}
