//! What is summed up by what, where rectangles lie, and that names of keys are text everywhere.

use kvasir_keyspace::place::DbIndex;

use crate::report::answer::{Large, Report, Sums};
use crate::report::by::{By, life, prefix};
use crate::report::treemap::{Rect, lay};

#[test]
fn a_prefix_ends_with_a_separator() {
    let check = |key: &str, separator: &str, depth, expect: &str| {
        let found = prefix(key.as_bytes(), separator.as_bytes(), depth);
        assert_eq!(found, expect.as_bytes(), "{key} {separator} {depth}");
    };
    check("user:7:name", ":", 1, "user:");
    check("user:7:name", ":", 2, "user:7:");
    check("user:7:name", ":", 9, "user:7:");
    check("user", ":", 1, "");
    check("", ":", 1, "");
    check(":a", ":", 1, ":");
    check("a::b::c", "::", 2, "a::b::");
    check("a:::b", "::", 2, "a::");
    check("a:b", "", 1, "");
    check("a:b", "a:b:c", 1, "");
}

/// Whatever the bytes: a prefix is one, and more depth makes it longer or leaves it.
#[test]
fn prefixes_are_prefixes() {
    let mut state = 1_u64;
    let mut draw = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..2000 {
        let key: Vec<u8> = (0..draw(20)).map(|_| draw(3) as u8).collect();
        let separator: Vec<u8> = (0..draw(4)).map(|_| draw(3) as u8).collect();
        let mut before = 0;
        for depth in 0..8 {
            let found = prefix(&key, &separator, depth);
            assert!(key.starts_with(found) && found.len() >= before);
            assert!(found.is_empty() || found.ends_with(&separator));
            before = found.len();
        }
    }
}

#[test]
fn lives_have_names() {
    let names = [None, Some(0), Some(59_999), Some(60_000), Some(86_400_000), Some(u64::MAX)];
    assert_eq!(names.map(life), ["none", "<1m", "<1m", "<1h", "<7d", ">=30d"]);
}

/// Areas are as parts, nothing overlaps, nothing sticks out.
#[test]
fn rectangles_fill_the_whole() {
    let mut state = 7_u64;
    let mut draw = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let whole = Rect { x: 3.0, y: 5.0, width: 120.0, height: 64.0 };
    for count in 0..60 {
        let mut part = |_| {
            let bits = draw(20);
            (1 + draw(1 << bits)) as f64
        };
        let mut parts: Vec<f64> = (0..count).map(&mut part).collect();
        parts.sort_by(|one, other| other.total_cmp(one));
        let laid = lay(&parts, whole);
        assert_eq!(laid.len(), parts.len());
        let sum: f64 = parts.iter().sum();
        for (part, rect) in parts.iter().zip(&laid) {
            assert!((rect.area() - part / sum * whole.area()).abs() < 1e-6);
            let slack = 1e-6;
            assert!(rect.x >= whole.x - slack && rect.y >= whole.y - slack);
            assert!(rect.x + rect.width <= whole.x + whole.width + slack);
            assert!(rect.y + rect.height <= whole.y + whole.height + slack);
        }
        for (index, one) in laid.iter().enumerate() {
            for other in &laid[index + 1..] {
                let across = (one.x + one.width).min(other.x + other.width) - one.x.max(other.x);
                let down = (one.y + one.height).min(other.y + other.height) - one.y.max(other.y);
                assert!(across < 1e-6 || down < 1e-6, "{one:?} {other:?}");
            }
        }
    }
    assert_eq!(lay(&[1.0], whole), [whole]);
}

fn sums(keys: u64, bytes: u64) -> Sums {
    Sums { keys, bytes, ..Sums::default() }
}

fn hostile() -> Report {
    let name = "</title><script>alert('1')</script>\u{202e}\"".as_bytes().to_vec();
    let large = Large {
        db: DbIndex(3),
        name: b"=cmd,\"\xff\n".to_vec(),
        kind: "string",
        encoding: "raw",
        bytes: 90,
        length: 60,
        ttl_ms: None,
    };
    let row = Sums { largest: vec![large.clone()], ..sums(1, 90) };
    let by = By::from_name(b"PREFIX", b":", 2).unwrap();
    let mut report = Report {
        by,
        cut_ms: 17,
        total: sums(3, 190),
        rows: Vec::new(),
        others: (0, Sums::default()),
        rest: sums(1, 50),
        largest: vec![large],
        seconds: 0.5,
        memory_bytes: 1,
    };
    let rows = vec![(b"-b:".to_vec(), sums(1, 30)), (b"c:".to_vec(), sums(1, 20)), (name, row)];
    report.set_rows(rows, 2);
    report
}

#[test]
fn names_are_text_everywhere() {
    let report = hostile();
    assert_eq!(report.rows[1].0, b"-b:");
    assert_eq!((report.others.0, report.others.1.bytes), (1, 20));
    let page = report.to_html("<dump>");
    assert!(!page.contains("<script") && !page.contains("alert('1')"));
    assert!(page.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;\\u{202e}&quot;"));
    assert!(page.contains("<h1>What fills the memory: &lt;dump&gt;</h1>"));
    assert!(page.contains("=cmd,\\&quot;\\xff\\n") || page.contains("=cmd,&quot;\\xff\\n"));
    let json = report.to_json();
    assert!(json.contains(r#""name":"\u003c/title\u003e\u003cscript\u003ealert('1')"#));
    assert!(json.contains(r#""key":"=cmd,\\\"\\xff\\n""#), "{json}");
    assert!(json.contains(r#""rest":{"keys":1,"bytes":50,"#));
    let csv = report.to_csv();
    assert!(csv.contains("\n\"'-b:\",1,30,0,0,0,,\n"), "{csv}");
    assert!(csv.contains(",\"'=cmd,\\\"\"\\xff\\n\",90\n"), "{csv}");
    assert!(csv.ends_with("(1 other rows),1,20,0,0,0,,\n(no room for a row),1,50,0,0,0,,\n"));
}
