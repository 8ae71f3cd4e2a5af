//! Any bytes are a listpack or an error; what is a listpack can be read and edited as a list.
//!
//! | Bytes of the input | Meaning |
//! |---|---|
//! | 1 | bit 7: the listpack comes with header and end; the rest: its size |
//! | size | the listpack |
//! | the rest | edits: kind, index, size of the element, the element |
#![no_main]

use kvasir_structures::listpack::{Element, Listpack, ListpackRef, validate};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&head, rest)) = input.split_first() else { return };
    let Some((bytes, edits)) = rest.split_at_checked(usize::from(head & 0x7f)) else { return };
    let bytes = if head & 0x80 != 0 { bytes.to_vec() } else { framed(bytes) };
    let mut listpack = match validate(&bytes) {
        Ok(()) => Listpack::from_sound_bytes(bytes),
        Err(_) => Listpack::new(),
    };
    let mut model = texts(listpack.view());
    check(&listpack, &model);
    let mut edits = edits;
    while let [kind, index, size, after @ ..] = edits {
        let (text, after) = after.split_at(usize::from(*size).min(after.len()));
        edit(&mut listpack, &mut model, *kind, usize::from(*index), text);
        check(&listpack, &model);
        edits = after;
    }
});

/// A would-be listpack of these entries, with a count that need not be right.
fn framed(entries: &[u8]) -> Vec<u8> {
    let size = (entries.len() + 7) as u32;
    [&size.to_le_bytes(), &[0xff; 2][..], entries, &[0xff]].concat()
}

fn texts(listpack: ListpackRef<'_>) -> Vec<Vec<u8>> {
    listpack.iter().map(Element::to_vec).collect()
}

fn check(listpack: &Listpack, model: &[Vec<u8>]) {
    let view = listpack.view();
    assert_eq!(validate(view.bytes()), Ok(()));
    assert_eq!(texts(view), model);
    assert_eq!(view.len(), model.len());
    let backward: Vec<_> = view.iter().rev().map(Element::to_vec).collect();
    assert!(backward.iter().eq(model.iter().rev()));
}

fn edit(listpack: &mut Listpack, model: &mut Vec<Vec<u8>>, kind: u8, index: usize, text: &[u8]) {
    let (view, element) = (listpack.view(), Element::Bytes(text));
    let index = index % (model.len() + 1);
    let at = view.seek(index as i64).unwrap_or(view.end());
    match kind % 6 {
        0 => {
            listpack.insert(at, element);
            model.insert(index, text.to_vec());
        }
        1 if index < model.len() => {
            listpack.replace(at, element);
            // The bug that the fuzzer must find.
            if cfg!(feature = "canary") && index == 2 {
                return;
            }
            model[index] = text.to_vec();
        }
        2 => {
            let count = text.len().min(model.len() - index);
            listpack.remove(at, count);
            model.drain(index..index + count);
        }
        3 => {
            let found = view.find(view.start(), text, 0);
            let wanted = model.iter().position(|other| other == text);
            assert_eq!(found, wanted.and_then(|index| view.seek(index as i64)));
        }
        4 => {
            let copy = listpack.clone();
            listpack.extend_from(copy.view(), copy.view().start()..at);
            model.extend_from_within(..index);
        }
        _ => {
            listpack.push_front(element);
            model.insert(0, text.to_vec());
        }
    }
}
