//! What Prometheus is shown: the names, types and labels of redis_exporter, so that dashboards
//! made for it work unchanged, and `kvasir_` for what Redis has not.
//!
//! Most of it are fields of INFO, which `fields` names; the rest is read from the same counters.
//! Nothing here enters the gate or locks a slot.

mod collect;
mod commands;
mod fields;
pub mod page;

use std::time::Instant;

use crate::info::Source;
use crate::info::census::Census;
use crate::metrics::collect::Sources;
use crate::metrics::page::{Format, Page};
use crate::state::shared::Shared;

/// Pages made before, and what they took in seconds.
#[derive(Clone, Copy, Default)]
pub struct Scrapes {
    pub count: u64,
    pub seconds: f64,
    pub last_seconds: f64,
}

pub fn page(
    shared: &'static Shared,
    census: &Census,
    scrapes: &mut Scrapes,
    format: Format,
) -> Vec<u8> {
    let start = Instant::now();
    let (config, counted) = (shared.config(), census.ask());
    let now_ms = kvasir_reactor::clock::now_unix_ms();
    let source = Source { shared, config: &config, pass: None, counted: Some(&counted), now_ms };
    scrapes.count += 1;
    let sources = Sources::new(&source);
    let mut page = Page::new(format);
    fields::write(&sources, &mut page);
    collect::write(&sources, &mut page);
    commands::write(&sources, &mut page);
    collect::write_scrapes(*scrapes, &mut page);
    let took = start.elapsed().as_secs_f64();
    (scrapes.seconds, scrapes.last_seconds) = (scrapes.seconds + took, took);
    page.end()
}
