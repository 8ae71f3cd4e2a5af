//! The section about exports, graphs and reports.

use std::sync::atomic::Ordering::Relaxed;

use kvasir_structures::locks::lock;

use crate::info::{Lines, Source};

/// What has been done, and a line for each export, graph and report under way.
pub fn analytics(source: &Source<'_>, lines: &mut Lines) {
    let analytics = &source.shared.analytics;
    let (budget, stats) = (&analytics.budget, &analytics.stats);
    let (exports, jobs, reports) = (analytics.exports(), analytics.jobs(), analytics.reports());
    lines.field("analytics_memory_max", source.config.analytics_bytes());
    lines.field("analytics_memory_used", budget.taken());
    lines.field("analytics_memory_peak", budget.taken_max());
    lines.field("exports_active", exports.len());
    lines.field("exports_begun", stats.exports.load(Relaxed));
    lines.field("exports_given_up", stats.exports_given_up.load(Relaxed));
    lines.field("exported_rows", stats.rows.load(Relaxed));
    lines.field("exported_bytes", stats.bytes.load(Relaxed));
    lines.field("graphs_active", jobs.len());
    lines.field("graphs_computed", stats.graphs.load(Relaxed));
    lines.field("graphs_failed", stats.graphs_failed.load(Relaxed));
    lines.field("reports_active", reports.len());
    lines.field("reports_made", stats.reports.load(Relaxed));
    lines.field("reports_failed", stats.reports_failed.load(Relaxed));
    lines.field("analytics_last_failure", lock(&stats.last_failure));
    for (index, export) in exports.iter().enumerate() {
        let stream = &export.stream;
        let (rows, bytes) = (stream.rows.load(Relaxed), stream.bytes.load(Relaxed));
        let line = format!(
            "id={},client={},rows={rows},bytes_read={bytes},misfits={}",
            stream.id,
            export.client,
            stream.misfits.load(Relaxed)
        );
        lines.field(&format!("export_{index}"), line);
    }
    for (kind, jobs) in [("graph", jobs), ("report", reports)] {
        for (index, job) in jobs.iter().enumerate() {
            let line = format!(
                "id={},client={},command={},progress={},seconds={:.3},memory={}",
                job.id,
                job.client,
                job.name,
                job.progress(),
                job.took().as_secs_f64(),
                job.share.bytes()
            );
            lines.field(&format!("{kind}_{index}"), line);
        }
    }
}
