//! A stream against a model: a map of ids, and what Redis writes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const LIMITS: NodeLimits = NodeLimits { bytes_max: 200, entries_max: 6 };

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;
type Content = Vec<(StreamId, Pairs)>;

fn content<'a>(entries: impl Iterator<Item = Entry<'a>>) -> Content {
    let fields = |entry: Entry<'_>| {
        entry.fields().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
    };
    entries.map(|entry| (entry.id, fields(entry))).collect()
}

/// The same stream by way of its parts.
fn restored(stream: &Stream) -> Stream {
    let mut restore = Restore::new();
    for node in stream.nodes() {
        restore.node(node.master, node.listpack.bytes().to_vec()).unwrap();
    }
    let Stream { len, last_id, max_deleted_id, entries_added, .. } = *stream;
    restore.finish(len, last_id, max_deleted_id, entries_added).unwrap()
}

#[derive(Clone, Debug)]
enum Change {
    Append { step: (u64, u64), pairs: Vec<String> },
    Delete(u64),
    Trim { to: u64, by_id: bool, is_approximate: bool, limit: Option<u64> },
}

fn change() -> impl Strategy<Value = Change> {
    let part = prop::sample::select(&["a", "b", "7", "-300", "a longer value", ""][..]);
    let pairs = prop::collection::vec(part.prop_map(String::from), 1..4)
        .prop_map(|parts| parts.iter().flat_map(|part| [part.clone(), part.clone()]).collect());
    prop_oneof![
        6 => ((0..3u64, 0..3u64), pairs).prop_map(|(step, pairs)| Change::Append { step, pairs }),
        2 => (0..60u64).prop_map(Change::Delete),
        1 => (0..60u64, any::<bool>(), any::<bool>(), prop::option::of(0..20u64)).prop_map(
            |(to, by_id, is_approximate, limit)| {
                let limit = limit.filter(|_| is_approximate);
                Change::Trim { to, by_id, is_approximate, limit }
            }
        ),
    ]
}

proptest! {
    #[test]
    fn a_stream_is_a_map_of_ids(
        changes in prop::collection::vec(change(), 0..80),
        from in 0..40u64,
        to in 0..60u64,
    ) {
        let (mut stream, mut model) = (Stream::new(), BTreeMap::new());
        let all = |stream: &Stream| content(stream.range(StreamId::MIN, StreamId::MAX));
        let (mut copy, half) = ((Stream::new(), Content::new()), changes.len() / 2);
        for (number, change) in changes.into_iter().enumerate() {
            if number == half {
                copy = (stream.clone(), all(&stream));
            }
            apply(&mut stream, &mut model, change);
            if let Some(packed) = stream.to_packed() {
                stream = Stream::from_packed(&packed);
            }
            prop_assert_eq!(stream.len(), model.len() as u64);
        }
        prop_assert_eq!(all(&copy.0), copy.1);
        let expected: Content = model.clone().into_iter().collect();
        prop_assert_eq!(all(&stream), expected.clone());
        prop_assert_eq!(content(restored(&stream).range(StreamId::MIN, StreamId::MAX)), expected);
        let (from, to) = (StreamId::new(from, 1), StreamId::new(to, 1));
        let inside = |id: &StreamId| (from..=to).contains(id);
        let mut expected: Content = model.into_iter().filter(|(id, _)| inside(id)).collect();
        prop_assert_eq!(content(stream.range(from, to)), expected.clone());
        expected.reverse();
        prop_assert_eq!(content(stream.range_backward(from, to)), expected);
    }

    #[test]
    fn broken_nodes_are_refused_or_can_be_read(
        changes in prop::collection::vec(change(), 1..20),
        at in any::<prop::sample::Index>(),
        byte: u8,
    ) {
        let (mut stream, mut model) = (Stream::new(), BTreeMap::new());
        changes.into_iter().for_each(|change| apply(&mut stream, &mut model, change));
        let mut restore = Restore::new();
        for node in stream.nodes() {
            let mut bytes = node.listpack.bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = restore.node(node.master, bytes);
        }
        let len = restore.entry_count();
        if let Ok(stream) = restore.finish(len, StreamId::MAX, StreamId::MIN, len) {
            let forth = content(stream.range(StreamId::MIN, StreamId::MAX));
            let mut back = content(stream.range_backward(StreamId::MIN, StreamId::MAX));
            back.reverse();
            prop_assert_eq!(forth.len() as u64, len);
            prop_assert_eq!(forth, back);
        }
    }
}

fn apply(stream: &mut Stream, model: &mut BTreeMap<StreamId, Pairs>, it: Change) {
    match it {
        Change::Append { step: (ms, seq), pairs } => {
            let last = stream.last_id();
            let id = StreamId::new(last.ms + ms, if ms > 0 { seq } else { last.seq + seq + 1 });
            let parts: Vec<&[u8]> = pairs.iter().map(|part| part.as_bytes()).collect();
            stream.append(id, &parts, LIMITS);
            let pairs = parts.chunks(2).map(|pair| (pair[0].to_vec(), pair[1].to_vec()));
            model.insert(id, pairs.collect());
        }
        Change::Delete(ms) => {
            let ids: Vec<StreamId> = model.keys().copied().filter(|id| id.ms == ms).collect();
            assert!(!stream.delete(StreamId::new(ms, 1_000_000)));
            for id in ids {
                assert!(stream.delete(id) && !stream.delete(id));
                model.remove(&id);
            }
        }
        Change::Trim { to, by_id, is_approximate, limit } => {
            let to = if by_id { TrimTo::Id(StreamId::new(to, 1)) } else { TrimTo::Len(to) };
            let removed = stream.trim(Trim { to, is_approximate, limit });
            assert!(limit.is_none_or(|limit| removed <= limit));
            for _ in 0..removed {
                let (id, _) = model.pop_first().unwrap();
                assert!(!matches!(to, TrimTo::Id(from) if id >= from));
            }
            match to {
                TrimTo::Len(len) => {
                    assert!(removed == 0 || model.len() as u64 >= len);
                    assert!(is_approximate || model.len() as u64 <= len);
                }
                TrimTo::Id(id) => assert!(is_approximate || model.keys().all(|other| *other >= id)),
            }
        }
    }
}

/// What DUMP of Redis 7.0 holds after XADD s 1-1 a 1 b x; XADD s 1-2 a 2 b y; XADD s 3-1 c z;
/// XDEL s 1-2.
#[test]
fn a_node_is_redis_s() {
    let mut stream = Stream::new();
    let limits = NodeLimits { bytes_max: 4096, entries_max: 100 };
    stream.append(StreamId::new(1, 1), &[b"a", b"1", b"b", b"x"], limits);
    stream.append(StreamId::new(1, 2), &[b"a", b"2", b"b", b"y"], limits);
    stream.append(StreamId::new(3, 1), &[b"c", b"z"], limits);
    assert!(stream.delete(StreamId::new(1, 2)));
    let node = stream.nodes().next().unwrap();
    assert_eq!(node.master, StreamId::new(1, 1));
    let elements: Vec<String> =
        node.listpack.iter().map(|it| String::from_utf8(it.to_vec()).unwrap()).collect();
    let expected = "2 1 2 a b 0 2 0 0 1 x 5 3 0 1 2 y 5 0 2 0 1 c z 6";
    assert_eq!(elements.join(" "), expected);
}

#[test]
fn a_packed_stream_keeps_everything() {
    let mut stream = Stream::new();
    stream.set_last_id(StreamId::new(9, 8));
    stream.set_max_deleted_id(StreamId::new(7, 6));
    stream.set_entries_added(5);
    let packed = stream.to_packed().unwrap();
    assert_eq!(packed.len(), 40);
    let copy = Stream::from_packed(&packed);
    assert_eq!(format!("{copy:?}"), format!("{stream:?}"));
    stream.add_group(b"g", Group::new(StreamId::MIN, None));
    assert!(stream.to_packed().is_none(), "a stream with a group is no tiny one");
}

#[test]
fn groups_know_whose_what_is() {
    let mut group = Group::new(StreamId::MIN, Some(0));
    let (one, two) = (group.add_consumer(b"one", 1), group.add_consumer(b"two", 1));
    let ids = [1, 2, 3].map(|ms| StreamId::new(ms, 0));
    for id in ids {
        let consumer = one;
        group.set_pending(id, Pending { consumer, delivered_ms: 5, deliveries: 1 });
    }
    group.set_pending(ids[1], Pending { consumer: two, delivered_ms: 6, deliveries: 2 });
    let of = |group: &Group, consumer| -> Vec<StreamId> {
        group.pending_of(consumer, StreamId::MIN, StreamId::MAX).map(|(id, _)| id).collect()
    };
    assert_eq!((of(&group, one), of(&group, two)), (vec![ids[0], ids[2]], vec![ids[1]]));
    assert!(group.acknowledge(ids[0]) && !group.acknowledge(ids[0]));
    assert_eq!(group.remove_consumer(b"one"), Some(1));
    assert_eq!(group.pending_len(), 1);
    let three = group.add_consumer(b"three", 1);
    assert!(of(&group, three).is_empty() && group.name_of(three) == b"three");
}

#[test]
fn a_restored_group_has_one_consumer_for_each_entry() {
    let id = StreamId::new(1, 1);
    let consumer = |name, pending| RestoredConsumer { name, seen_ms: 1, active_ms: None, pending };
    let group = |pending: &[_], consumers: &[_]| {
        Restore::group(StreamId::MIN, None, pending, consumers).map(|group| group.pending_len())
    };
    assert_eq!(group(&[(id, 5, 1)], &[consumer(b"c", vec![id])]), Ok(1));
    let orphan = group(&[(id, 5, 1)], &[consumer(b"c", vec![])]);
    let unknown = group(&[], &[consumer(b"c", vec![id])]);
    let shared = group(&[(id, 5, 1)], &[consumer(b"c", vec![id]), consumer(b"d", vec![id])]);
    assert_eq!([orphan, unknown, shared], [Err(StreamError::Pending(id)); 3]);
    assert_eq!(
        group(&[], &[consumer(b"c", vec![]), consumer(b"c", vec![])]),
        Err(StreamError::Twice)
    );
}
