//! A page of metrics, in Prometheus's text or as OpenMetrics.
//!
//! OpenMetrics wants the names of counters to end in `_total`, and quantiles below 1. Where a name
//! of redis_exporter's is not so, what it names is of type `unknown` there: it is the name that
//! dashboards know.

use std::fmt::{Display, Write};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Text,
    OpenMetrics,
}

impl Format {
    /// What a client likes best, by the field Accept.
    pub fn of(accept: &str) -> Format {
        let quality = |wanted: &[&str]| {
            let of_kind = accept.split(',').filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let kind = parts.next()?;
                let q = parts.find_map(|part| part.strip_prefix("q="));
                wanted.contains(&kind).then(|| q.and_then(|q| q.parse().ok()).unwrap_or(1.0))
            });
            of_kind.fold(0.0f64, f64::max)
        };
        let text = quality(&["text/plain", "text/*", "*/*"]);
        match quality(&["application/openmetrics-text"]) > text {
            true => Format::OpenMetrics,
            false => Format::Text,
        }
    }

    /// The media type.
    pub fn kind(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
    /// Quantiles by percent, as redis_exporter has them.
    Summary,
}

/// All samples of one name.
pub struct Family<'a> {
    pub name: &'a str,
    pub kind: Kind,
    pub help: &'a str,
    samples: Vec<Sample>,
}

struct Sample {
    suffix: &'static str,
    labels: String,
    value: String,
}

/// How many there were, and their sum.
#[derive(Clone, Copy)]
pub struct Total {
    pub count: u64,
    pub sum: f64,
}

impl<'a> Family<'a> {
    pub fn new(name: &'a str, kind: Kind, help: &'a str) -> Family<'a> {
        Family { name, kind, help, samples: Vec::new() }
    }

    pub fn add(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.add_part("", labels, value);
    }

    fn add_part(&mut self, suffix: &'static str, labels: &[(&str, &str)], value: impl Display) {
        let mut text = String::new();
        for (number, (name, value)) in labels.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            let _ = write!(text, "{comma}{name}=\"{}\"", escaped(value));
        }
        self.samples.push(Sample { suffix, labels: text, value: value.to_string() });
    }

    /// A histogram; `buckets` are upper bounds and how many were not above each. Bounds are written
    /// as OpenMetrics wants them, with a point.
    pub fn add_histogram(&mut self, labels: &[(&str, &str)], buckets: &[(f64, u64)], total: Total) {
        let Total { count, sum } = total;
        let bounds = buckets.iter().map(|(bound, count)| (format!("{bound:?}"), *count));
        for (bound, count) in bounds.chain([("+Inf".into(), count)]) {
            let labels: Vec<(&str, &str)> = [labels, &[("le", &bound[..])]].concat();
            self.add_part("_bucket", &labels, count);
        }
        self.add_part("_sum", labels, sum);
        self.add_part("_count", labels, count);
    }

    pub fn add_summary(
        &mut self,
        labels: &[(&str, &str)],
        quantiles: &[(String, f64)],
        total: Total,
    ) {
        let Total { count, sum } = total;
        for (quantile, value) in quantiles {
            let labels: Vec<(&str, &str)> = [labels, &[("quantile", &quantile[..])]].concat();
            self.add_part("", &labels, value);
        }
        self.add_part("_sum", labels, sum);
        self.add_part("_count", labels, count);
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

pub struct Page {
    format: Format,
    text: String,
}

impl Page {
    pub fn new(format: Format) -> Page {
        Page { format, text: String::new() }
    }

    /// One sample without labels.
    pub fn one(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        let mut family = Family::new(name, kind, help);
        family.add(&[], value);
        self.add(&family);
    }

    /// A family without samples is left out.
    pub fn add(&mut self, family: &Family<'_>) {
        if self.format == Format::OpenMetrics && family.kind == Kind::Summary {
            return ["", "_sum", "_count"].into_iter().for_each(|suffix| {
                self.add_part(family, suffix);
            });
        }
        if family.samples.is_empty() {
            return;
        }
        let (name, kind) = self.head_of(family);
        self.head(name, kind, family.help);
        for Sample { suffix, labels, value } in &family.samples {
            self.sample(family.name, suffix, labels, value);
        }
    }

    /// The samples with one suffix as a family of its own.
    fn add_part(&mut self, family: &Family<'_>, wanted: &str) {
        let mut samples = family.samples.iter().filter(|sample| sample.suffix == wanted).peekable();
        if samples.peek().is_some() {
            self.head(&format!("{}{wanted}", family.name), "unknown", family.help);
        }
        for Sample { suffix, labels, value } in samples {
            self.sample(family.name, suffix, labels, value);
        }
    }

    /// Name and type as the format has them.
    fn head_of<'f>(&self, family: &'f Family<'_>) -> (&'f str, &'static str) {
        let name = family.name;
        match (family.kind, self.format) {
            (Kind::Counter, Format::OpenMetrics) => match name.strip_suffix("_total") {
                Some(stem) => (stem, "counter"),
                None => (name, "unknown"),
            },
            (Kind::Counter, Format::Text) => (name, "counter"),
            (Kind::Gauge, _) => (name, "gauge"),
            (Kind::Histogram, _) => (name, "histogram"),
            (Kind::Summary, _) => (name, "summary"),
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, suffix: &str, labels: &str, value: &str) {
        let _ = match labels {
            "" => writeln!(self.text, "{name}{suffix} {value}"),
            labels => writeln!(self.text, "{name}{suffix}{{{labels}}} {value}"),
        };
    }

    pub fn end(mut self) -> Vec<u8> {
        if self.format == Format::OpenMetrics {
            self.text += "# EOF\n";
        }
        self.text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(format: Format, family: &Family<'_>) -> String {
        let mut page = Page::new(format);
        page.add(family);
        String::from_utf8(page.end()).unwrap()
    }

    #[test]
    fn counters_keep_their_names() {
        let mut family = Family::new("a_total", Kind::Counter, "Some.");
        family.add(&[("cmd", "x\"\\\n")], 1);
        let sample = "a_total{cmd=\"x\\\"\\\\\\n\"} 1\n";
        let text = format!("# HELP a_total Some.\n# TYPE a_total counter\n{sample}");
        assert_eq!(page(Format::Text, &family), text);
        let open = format!("# HELP a Some.\n# TYPE a counter\n{sample}# EOF\n");
        assert_eq!(page(Format::OpenMetrics, &family), open);
        let mut family = Family::new("a", Kind::Counter, "Some.");
        assert_eq!(page(Format::Text, &family), "");
        family.add(&[], 1.5);
        let open = "# HELP a Some.\n# TYPE a unknown\na 1.5\n# EOF\n";
        assert_eq!(page(Format::OpenMetrics, &family), open);
    }

    #[test]
    fn histograms_end_with_all() {
        let mut family = Family::new("h", Kind::Histogram, "H.");
        family.add_histogram(&[("cmd", "a")], &[(1.0, 2)], Total { count: 3, sum: 4.5 });
        let text = "# HELP h H.\n# TYPE h histogram\nh_bucket{cmd=\"a\",le=\"1.0\"} 2\n\
                    h_bucket{cmd=\"a\",le=\"+Inf\"} 3\nh_sum{cmd=\"a\"} 4.5\nh_count{cmd=\"a\"} 3\n";
        assert_eq!(page(Format::Text, &family), text);
    }

    #[test]
    fn summaries_of_percents_are_unknown_to_open_metrics() {
        let mut family = Family::new("s", Kind::Summary, "S.");
        family.add_summary(&[], &[("50".into(), 1.0)], Total { count: 3, sum: 4.5 });
        let text = "# HELP s S.\n# TYPE s summary\ns{quantile=\"50\"} 1\ns_sum 4.5\ns_count 3\n";
        assert_eq!(page(Format::Text, &family), text);
        let open = "# HELP s S.\n# TYPE s unknown\ns{quantile=\"50\"} 1\n\
                    # HELP s_sum S.\n# TYPE s_sum unknown\ns_sum 4.5\n\
                    # HELP s_count S.\n# TYPE s_count unknown\ns_count 3\n# EOF\n";
        assert_eq!(page(Format::OpenMetrics, &family), open);
    }

    #[test]
    fn formats_by_what_a_client_accepts() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,\
                          application/openmetrics-text;version=0.0.1;q=0.5,\
                          text/plain;version=0.0.4;q=0.4,*/*;q=0.3";
        assert_eq!(Format::of(prometheus), Format::OpenMetrics);
        for accept in ["", "*/*", "text/html,*/*;q=0.8", "application/openmetrics-text;q=0.1,*/*"] {
            assert_eq!(Format::of(accept), Format::Text, "{accept}");
        }
        assert_eq!(Format::of("application/openmetrics-text"), Format::OpenMetrics);
    }
}
