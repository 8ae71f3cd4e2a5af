//! Tests of the slab.

use super::*;
use std::collections::HashMap;

#[test]
fn classes_hold_their_sizes_and_waste_at_most_a_sixteenth() {
    for size in 1..=PAGED_MAX {
        let usable = usable_size(size);
        assert!(usable >= size && usable <= (size + 7).max(size + size / 16 + 1), "{size}");
        assert_eq!(usable_size(usable), usable);
        assert!(class_of(size) < CLASSES);
        if size % 64 == 0 && size > FINE_MAX {
            assert_eq!(usable % 64, 0);
        }
    }
    assert_eq!(usable_size(88), 88);
    assert_eq!(usable_size(96 * 64), 96 * 64);
}

#[test]
fn objects_do_not_overlap_and_come_back() {
    let mut live: HashMap<usize, (NonNull<u8>, u8)> = HashMap::new();
    let mut state = 1u64;
    for round in 0..200_000usize {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let size = 8 + (state >> 33) as usize % 3000;
        let pointer = allocate(size);
        let fill = round as u8;
        // SAFETY: `size` bytes were allocated, and each is freed once with its size.
        unsafe {
            pointer.as_ptr().write_bytes(fill, size);
            let slot = (state >> 20) as usize % 5000;
            if let Some((old, fill)) = live.insert(slot << 16 | size, (pointer, fill)) {
                let bytes = core::slice::from_raw_parts(old.as_ptr(), size);
                assert!(bytes.iter().all(|&byte| byte == fill));
                deallocate(old, size);
            }
        }
    }
    for (key, (pointer, fill)) in live {
        let size = key & 0xffff;
        // SAFETY: as above.
        unsafe {
            let bytes = core::slice::from_raw_parts(pointer.as_ptr(), size);
            assert!(bytes.iter().all(|&byte| byte == fill));
            deallocate(pointer, size);
        }
    }
}

/// Pages of a class with one object in ten left; moving empties nearly all of them, and every
/// object keeps its bytes.
#[test]
#[cfg(not(kvasir_sanitized))]
fn sparse_pages_empty() {
    // A class that no other test uses.
    const SIZE: usize = 19_000;
    let all: Vec<_> = (0..3000usize).map(|index| (allocate(SIZE), index)).collect();
    let page_at = |pointer: NonNull<u8>| pointer.as_ptr().addr() / PAGE_BYTES;
    let mut kept = Vec::new();
    for (pointer, index) in all {
        // SAFETY: `SIZE` bytes were allocated, and each is freed once.
        unsafe {
            pointer.cast::<usize>().write(index);
            if index % 10 == 0 { kept.push((pointer, index)) } else { deallocate(pointer, SIZE) }
        }
    }
    let pages = |kept: &[(NonNull<u8>, usize)]| {
        kept.iter().map(|(pointer, _)| page_at(*pointer)).collect::<std::collections::BTreeSet<_>>()
    };
    let before = pages(&kept).len();
    loop {
        let mut moves = 0;
        for (pointer, _) in &mut kept {
            // SAFETY: the object is live; the original is freed once and not used any more.
            unsafe {
                if let Some(copy) = copy_to_fuller_page(*pointer, SIZE) {
                    deallocate(*pointer, SIZE);
                    *pointer = copy;
                    moves += 1;
                }
            }
        }
        if moves == 0 {
            break;
        }
    }
    let after = pages(&kept).len();
    assert!(before >= 250 && after <= 300 / 6 + 1, "{before} pages, then {after}");
    purge(0);
    for (pointer, index) in kept {
        // SAFETY: as above.
        unsafe {
            assert_eq!(pointer.cast::<usize>().read(), index);
            deallocate(pointer, SIZE);
        }
    }
}

#[test]
fn multiples_of_a_line_are_aligned_to_lines() {
    let sizes = (1..=512).map(|buckets| buckets * 64);
    let all: Vec<_> = sizes.map(|size| (allocate(size), size)).collect();
    for (pointer, size) in all {
        assert_eq!(pointer.as_ptr().addr() % 64, 0, "{size}");
        // SAFETY: allocated above with this size.
        unsafe { deallocate(pointer, size) };
    }
}
