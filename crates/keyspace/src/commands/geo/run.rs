//! Running a search, and what becomes of its members.

use kvasir_resp::reply::Reply;
use kvasir_structures::geohash::Position;
use kvasir_structures::ordered_set::OrderedSet;

use super::nearest::sort_first;
use super::number::{hash_of, write_distance, write_position};
use super::query::{Finished, Output, Query};
use crate::command::Cx;
use crate::effect::Effect;
use crate::error::Error;
use crate::sorted_set_value::{self, Direction, Member, ScoreRange, SortedSet};

/// How many members a search that takes any looks at before it asks whether it has enough.
const CHUNK: usize = 64;

/// A member that was found.
struct Hit<'a> {
    member: Member<'a>,
    score: f64,
    position: Position,
    distance_m: f64,
}

/// Searches the set at key `source`; stores at key `destination`, as the event of that name, if
/// that is asked for.
pub fn run(
    cx: &mut Cx<'_, '_>,
    finished: Finished,
    source: usize,
    destination: usize,
    event: &'static str,
) -> Result<Effect, Error> {
    let Finished { output, query } = finished;
    let set = sorted_set_value::peek(&mut cx.view, source)?;
    let found = set.zip(query.as_ref()).map(|(set, query)| (query, search(set, query)));
    if output != Output::Reply {
        let (stored, count) = match found {
            Some((query, hits)) => (to_set(query, &hits), hits.len()),
            None => (OrderedSet::new(), 0),
        };
        let changed = sorted_set_value::store(&mut cx.view, destination, stored, event);
        cx.reply.integer(count as i64);
        return Ok(Effect::given_if(changed));
    }
    match found {
        Some((query, hits)) => write_hits(query, &hits, cx.reply),
        None => cx.reply.array(0),
    }
    Ok(Effect::None)
}

/// The members that a query asks for, in its order.
fn search<'a>(set: SortedSet<'a>, query: &Query) -> Vec<Hit<'a>> {
    let limit = query.count.filter(|_| query.takes_any).unwrap_or(usize::MAX);
    let mut hits = Vec::new();
    for range in query.shape.ranges() {
        let scores = ScoreRange {
            excludes_max: true,
            ..ScoreRange::including(range.start as f64, range.end as f64)
        };
        let ranks = set.ranks_by_score(scores);
        let chunk_len = if limit == usize::MAX { ranks.len() } else { CHUNK };
        for start in ranks.clone().step_by(chunk_len.max(1)) {
            let chunk = start..ranks.end.min(start + chunk_len);
            set.for_each(chunk, Direction::Ascending, |member, score| {
                let position = Position::decode(hash_of(score));
                if hits.len() < limit
                    && let Some(distance_m) = query.shape.distance_m(position)
                {
                    hits.push(Hit { member, score, position, distance_m });
                }
            });
            if hits.len() >= limit {
                break;
            }
        }
        if hits.len() >= limit {
            break;
        }
    }
    sort(&mut hits, query);
    hits
}

/// Brings hits into the order that is asked for, and drops those that are too many.
fn sort(hits: &mut Vec<Hit<'_>>, query: &Query) {
    let wanted = query.count.map_or(hits.len(), |count| count.min(hits.len()));
    if let Some(order) = query.order {
        let compare = |one: &Hit<'_>, other: &Hit<'_>| {
            let ascending = one.distance_m.total_cmp(&other.distance_m);
            if order == Direction::Ascending { ascending } else { ascending.reverse() }
        };
        sort_first(hits, wanted, &compare);
    }
    hits.truncate(wanted);
}

fn to_set(query: &Query, hits: &[Hit<'_>]) -> OrderedSet {
    let mut set = OrderedSet::new();
    for hit in hits {
        let score = match query.output {
            Output::StoreDistances => hit.distance_m / query.unit_m,
            _ => hit.score,
        };
        hit.member.with_bytes(|member| set.insert(member, score));
    }
    set
}

fn write_hits(query: &Query, hits: &[Hit<'_>], reply: &mut Reply) {
    let with = query.with;
    let extras = [with.distance, with.hash, with.position].iter().filter(|is_on| **is_on).count();
    reply.array(hits.len());
    for hit in hits {
        if extras > 0 {
            reply.array(1 + extras);
        }
        hit.member.write_to(reply);
        if with.distance {
            write_distance(hit.distance_m / query.unit_m, reply);
        }
        if with.hash {
            reply.integer(hit.score as i64);
        }
        if with.position {
            write_position(hit.position, reply);
        }
        if reply.is_cut() {
            break;
        }
    }
}
