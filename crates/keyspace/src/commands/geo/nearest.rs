//! Sorting the first few of many.
//!
//! Which of several members at the same distance come first is seen by clients. Redis sorts all
//! with a stable sort, but if only some are asked for with a quicksort that leaves the rest alone,
//! and so does this: J. L. Bentley and M. D. McIlroy, "Engineering a sort function" (1993).

use std::cmp::Ordering;

/// Up to this many are sorted by insertion.
const SMALL: usize = 6;
/// From this many on the pivot is a median of medians.
const LARGE: usize = 41;

/// Brings the first `wanted` of all into their places.
pub fn sort_first<T>(items: &mut [T], wanted: usize, compare: &impl Fn(&T, &T) -> Ordering) {
    if wanted == items.len() {
        items.sort_by(compare);
    } else {
        let depth_max = 2 * items.len().checked_ilog2().unwrap_or(0);
        quicksort(items, wanted, depth_max, compare);
    }
}

/// Leaves parts alone that begin behind the first `wanted`. Distances that someone chose to make
/// this slow end in the stable sort.
fn quicksort<T>(
    items: &mut [T],
    wanted: usize,
    depth_max: u32,
    compare: &impl Fn(&T, &T) -> Ordering,
) {
    if items.len() <= SMALL {
        return insertion_sort(items, compare);
    }
    if depth_max == 0 {
        return items.sort_by(compare);
    }
    let (less, greater) = partition(items, compare);
    if less > 1 {
        quicksort(&mut items[..less], wanted, depth_max - 1, compare);
    }
    let start = items.len() - greater;
    if greater > 1 && start < wanted {
        quicksort(&mut items[start..], wanted - start, depth_max - 1, compare);
    }
}

fn insertion_sort<T>(items: &mut [T], compare: &impl Fn(&T, &T) -> Ordering) {
    for end in 1..items.len() {
        for at in (1..=end).rev() {
            if compare(&items[at - 1], &items[at]) != Ordering::Greater {
                break;
            }
            items.swap(at - 1, at);
        }
    }
}

/// Moves what is less than a pivot to the front and what is greater to the back; returns how many
/// of each there are. Until the end the equal ones are kept outside: `items[..a]` and
/// `items[d + 1..]` are equal to the pivot, `items[a..b]` less, `items[c + 1..=d]` greater.
fn partition<T>(items: &mut [T], compare: &impl Fn(&T, &T) -> Ordering) -> (usize, usize) {
    let end = items.len();
    items.swap(0, pivot(items, compare));
    let (mut a, mut b, mut c, mut d) = (1, 1, end - 1, end - 1);
    loop {
        while b <= c {
            match compare(&items[b], &items[0]) {
                Ordering::Greater => break,
                Ordering::Equal => {
                    items.swap(a, b);
                    a += 1;
                }
                Ordering::Less => {}
            }
            b += 1;
        }
        while b <= c {
            match compare(&items[c], &items[0]) {
                Ordering::Less => break,
                Ordering::Equal => {
                    items.swap(c, d);
                    d -= 1;
                }
                Ordering::Greater => {}
            }
            c -= 1;
        }
        if b > c {
            break;
        }
        items.swap(b, c);
        b += 1;
        c -= 1;
    }
    let (less, greater) = (b - a, d - c);
    let (head, tail) = (a.min(less), greater.min(end - 1 - d));
    (0..head).for_each(|at| items.swap(at, b - head + at));
    (0..tail).for_each(|at| items.swap(b + at, end - tail + at));
    (less, greater)
}

fn pivot<T>(items: &[T], compare: &impl Fn(&T, &T) -> Ordering) -> usize {
    let median = |a: usize, b: usize, c: usize| {
        let is = |one: usize, order, other: usize| compare(&items[one], &items[other]) == order;
        if is(a, Ordering::Less, b) {
            if is(b, Ordering::Less, c) {
                b
            } else if is(a, Ordering::Less, c) {
                c
            } else {
                a
            }
        } else if is(b, Ordering::Greater, c) {
            b
        } else if is(a, Ordering::Less, c) {
            a
        } else {
            c
        }
    };
    let (first, middle, last) = (0, items.len() / 2, items.len() - 1);
    let step = items.len() / 8;
    match items.len() {
        len if len <= SMALL + 1 => middle,
        len if len < LARGE => median(first, middle, last),
        _ => median(
            median(first, first + step, first + 2 * step),
            median(middle - step, middle, middle + step),
            median(last - 2 * step, last - step, last),
        ),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_are_those_of_a_whole_sort(
            items in prop::collection::vec(0..50u8, 0..300),
            wanted: prop::sample::Index,
        ) {
            let wanted = wanted.index(items.len() + 1);
            let (mut some, mut all) = (items.clone(), items);
            sort_first(&mut some, wanted, &u8::cmp);
            all.sort();
            prop_assert_eq!(&some[..wanted], &all[..wanted]);
            some.sort();
            prop_assert_eq!(some, all);
        }
    }
}
