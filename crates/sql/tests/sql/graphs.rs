//! Graphs as table functions.

use crate::support::{do_all, failure, rows, start};

#[test]
fn graphs_are_tables() {
    let server = start(&[]);
    do_all(
        &server,
        &["SADD out:1 2 3", "SADD out:2 3", "SADD out:3 1", "SADD out:7 8", "SADD name:ada bob"],
    );
    do_all(&server, &["HSET ways 1 2,3 2 3"]);
    for (query, expected) in [
        (
            "SELECT node FROM pagerank('out:*') ORDER BY rank DESC, node LIMIT 2",
            &["node", "3", "1"][..],
        ),
        (
            "SELECT round(sum(rank), 6) AS s FROM pagerank('out:*', 'ITERATIONS 20 DAMPING 0.5')",
            &["s", "4.25"],
        ),
        (
            "SELECT component, count(*) AS n FROM components('out:*') GROUP BY 1 ORDER BY 1",
            &["component,n", "0,3", "1,2"],
        ),
        (
            "SELECT node, distance FROM bfs('out:*', 'ROOT 1') WHERE distance > 0 ORDER BY node",
            &["node,distance", "2,1", "3,1"],
        ),
        (
            "SELECT node, degree FROM degree('out:*', 'DIRECTION IN') ORDER BY degree DESC LIMIT 1",
            &["node,degree", "3,2"],
        ),
        ("SELECT sum(triangles) AS t FROM triangles('out:*')", &["t", "3"]),
        ("SELECT node FROM degree('name:*', 'IDS STRING') ORDER BY 1", &["node", "ada", "bob"]),
        (
            "SELECT node, degree FROM degree('HASH ways') ORDER BY 1",
            &["node,degree", "1,2", "2,1", "3,0"],
        ),
        (
            "SELECT d.node FROM degree('out:*') d JOIN components('out:*') c ON d.node = c.node \
             WHERE c.component = 1 ORDER BY 1",
            &["node", "7", "8"],
        ),
    ] {
        assert_eq!(rows(&server, query), expected, "{query}");
    }
    for (query, reason) in [
        ("SELECT * FROM pagerank('out:*', 'STORE x')", "'STORE' is none of"),
        ("SELECT * FROM pagerank('out:*', 'ITERATIONS')", "ITERATIONS wants a value"),
        ("SELECT * FROM pagerank('o*t:*')", "one *"),
        ("SELECT * FROM pagerank(1)", "one or two texts"),
        ("SELECT * FROM bfs('out:*', 'ROOT 99')", "no node '99'"),
    ] {
        let why = failure(&server, query);
        assert!(why.contains(reason), "{query}: {why}");
    }
}
