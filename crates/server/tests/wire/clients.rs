//! CLIENT: of one connection, and of many.

use crate::check::{check, check_ours, run_script, show};
use crate::harness::{Server, backends, each_backend, wait_until};

#[test]
fn names() {
    check(&[
        (
            "CLIENT GETNAME; CLIENT SETNAME me; CLIENT GETNAME; CLIENT SETNAME \"a b\"; \
             CLIENT SETNAME \"\"; CLIENT GETNAME",
            "_; +OK; $me; -ERR Client names cannot contain spaces, newlines or special \
             characters.; +OK; _",
        ),
        (
            "CLIENT SETNAME \"a\\nb\"",
            "-ERR Client names cannot contain spaces, newlines or special characters.",
        ),
    ]);
}

#[test]
fn errors() {
    check(&[
        (
            "CLIENT LIST TYPE x; CLIENT LIST x; CLIENT LIST ID; CLIENT LIST TYPE normal x",
            "-ERR Unknown client type 'x'; -ERR syntax error; -ERR syntax error; -ERR syntax error",
        ),
        (
            "CLIENT KILL 1.2.3.4:5; CLIENT KILL ID 0; CLIENT KILL TYPE x; \
             CLIENT KILL USER x; CLIENT KILL SKIPME x; CLIENT KILL x y; CLIENT KILL ID 1 x; \
             CLIENT KILL ID 999999; CLIENT KILL ADDR x LADDR y; CLIENT KILL TYPE pubsub",
            "-ERR No such client; -ERR client-id should be greater than 0; \
             -ERR Unknown client type 'x'; \
             -ERR No such user 'x'; -ERR syntax error; -ERR syntax error; -ERR syntax error; :0; \
             :0; :0",
        ),
        (
            "CLIENT REPLY x; CLIENT NO-EVICT x; CLIENT NO-EVICT on; CLIENT NO-EVICT OFF",
            "-ERR syntax error; -ERR syntax error; +OK; +OK",
        ),
    ]);
    check_ours(
        &[],
        &[(
            "CLIENT SETINFO x y; CLIENT SETINFO lib-name \"a b\"; CLIENT SETINFO LIB-VER 1; \
             CLIENT NO-TOUCH on; CLIENT NO-TOUCH x; CLIENT KILL MAXAGE x; CLIENT KILL MAXAGE 0; \
             CLIENT KILL MAXAGE 1000",
            "-ERR Unrecognized option 'x'; \
             -ERR lib-name cannot contain spaces, newlines or special characters.; +OK; +OK; \
             -ERR syntax error; -ERR maxage is not an integer or out of range; \
             -ERR maxage should be greater than 0; :0",
        )],
    );
}

/// Words of CLIENT LIST or CLIENT KILL, and what Valkey says to them.
#[test]
fn filters_are_refused_as_by_valkey() {
    let cases = [
        ("ID x", "-ERR syntax error"),
        ("ID 1 x", "-ERR syntax error"),
        ("ID -1", "-ERR client-id should be greater than 0"),
        ("NOT-ID x", "-ERR syntax error"),
        ("NOT-TYPE x", "-ERR Unknown client type 'x'"),
        ("NOT-USER x", "-ERR No such user 'x'"),
        ("MAXAGE -1", "-ERR maxage should be greater than 0"),
        ("MAXAGE x", "-ERR maxage is not an integer or out of range"),
        ("IDLE 0", "-ERR idle should be greater than 0"),
        ("IDLE x", "-ERR idle is not an integer or out of range"),
        ("NOT-IDLE 1", "-ERR syntax error"),
        ("NOT-SKIPME yes", "-ERR syntax error"),
        ("FLAGS ZUY", "-ERR Unknown flags found in the provided filter: ZUY"),
        ("NOT-FLAGS Z", "-ERR Unknown flags found in the NOT-FLAGS filter: Z"),
        ("CAPA x", "-ERR Unknown capa found in the provided filter: x"),
        ("NOT-CAPA zr", "-ERR Unknown capa found in the NOT-CAPA filter: zr"),
        ("DB 99", "-ERR DB number should be between 0 and 15"),
        ("DB x", "-ERR DB is not an integer or out of range"),
        ("NOT-DB x", "-ERR NOT-DB is not an integer or out of range"),
    ];
    for server in [Some(Server::kvasir("epoll", &[])), Server::valkey(&[])].into_iter().flatten() {
        let mut client = server.connect();
        for (filter, expected) in cases {
            for command in ["LIST", "KILL"] {
                let reply = show(&client.ask(&format!("CLIENT {command} {filter}")));
                assert_eq!(reply, expected, "{}: {command} {filter}", server.name);
            }
        }
    }
}

/// Which of three clients each filter finds, here and at Valkey.
#[test]
fn filters_find_the_same_clients_as_at_valkey() {
    let cases = [
        ("TYPE pubsub", "c"),
        ("NOT-TYPE pubsub", "ab"),
        ("TYPE primary", ""),
        ("USER default", "abc"),
        ("NOT-USER default", ""),
        ("NAME b", "b"),
        ("NOT-NAME b", "ac"),
        ("NAME a NAME b", "b"),
        ("LIB-NAME lib", "b"),
        ("NOT-LIB-NAME lib", "ac"),
        ("LIB-VER 1", "b"),
        ("DB 3", "b"),
        ("NOT-DB 3", "ac"),
        ("FLAGS P", "c"),
        ("FLAGS UP", "c"),
        ("NOT-FLAGS UP", "ab"),
        ("FLAGS U", "abc"),
        ("CAPA r", "b"),
        ("NOT-CAPA r", "ac"),
        ("SKIPME yes", "bc"),
        ("IP 1.2.3.4", ""),
        ("NOT-IP 1.2.3.4", "abc"),
        ("ADDR 1.2.3.4:5", ""),
        ("NOT-LADDR 1.2.3.4:5", "abc"),
        ("MAXAGE 1000", ""),
        ("IDLE 1000", ""),
        ("ID {a} {b} 99999", "ab"),
        ("ID {a} ID {c}", "ac"),
        ("ID {a} {b} NAME b", "b"),
        ("NOT-ID {a} {b}", "c"),
        ("ID {a} NOT-ID {a}", ""),
    ];
    let servers = backends().into_iter().map(|backend| Server::kvasir(backend, &[]));
    for server in servers.chain(Server::valkey(&[])) {
        let [mut a, mut b, mut c] = [(); 3].map(|()| server.connect());
        let ids = [&mut a, &mut b, &mut c].map(|client| client.ask("CLIENT ID").as_integer());
        let ids = ids.map(|id| id.unwrap().to_string());
        run_script(
            &mut b,
            "CLIENT SETNAME b; CLIENT SETINFO LIB-NAME lib; CLIENT SETINFO LIB-VER 1; SELECT 3; \
             CLIENT CAPA redirect",
        );
        c.ask("SUBSCRIBE news");
        for (filter, expected) in cases {
            let names = ["{a}", "{b}", "{c}"].iter().zip(&ids);
            let filter = names.fold(filter.to_string(), |text, (name, id)| text.replace(name, id));
            let list = a.ask_text(&format!("CLIENT LIST {filter}"));
            let found: Vec<&str> = list.lines().map(|line| field(line, "id")).collect();
            let is_found = |(_, id): &(&str, &String)| found.contains(&id.as_str());
            let found: String = ["a", "b", "c"]
                .into_iter()
                .zip(&ids)
                .filter(is_found)
                .map(|(name, _)| name)
                .collect();
            assert_eq!(found, expected, "{}: {filter}", server.name);
        }
        let killed = a.ask(&format!("CLIENT KILL NOT-ID {} TYPE normal", ids[2]));
        assert_eq!(killed.as_integer(), Some(1), "{}", server.name);
        assert!(b.ends(), "{}", server.name);
        assert_eq!(a.ask("CLIENT KILL FLAGS P SKIPME no").as_integer(), Some(1));
        assert!(c.read_reply().is_none(), "{}", server.name);
    }
}

#[test]
fn replies_can_be_dropped() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        client.send_raw(b"CLIENT REPLY SKIP\r\nECHO dropped\r\nECHO seen\r\n");
        client.send_raw(b"CLIENT REPLY OFF\r\nECHO dropped\r\nNOSUCH\r\nCLIENT REPLY SKIP\r\n");
        client.send_raw(b"ECHO dropped\r\nCLIENT REPLY ON\r\nECHO again\r\n");
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(crate::check::show(&client.read_reply().unwrap()));
        }
        assert_eq!(seen, ["$seen", "+OK", "$again"], "{}", server.name);
    });
}

/// The fields of a line by name.
fn field<'l>(line: &'l str, name: &str) -> &'l str {
    let found =
        line.trim_end().split(' ').find_map(|field| field.strip_prefix(&format!("{name}=")));
    found.unwrap_or_else(|| panic!("no {name} in {line}"))
}

#[test]
fn a_line_has_the_fields_of_redis() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        run_script(
            &mut client,
            "HELLO 3; CLIENT SETNAME me; CLIENT SETINFO LIB-NAME lib; SELECT 3; CLIENT NO-EVICT on",
        );
        let id = client.ask("CLIENT ID").as_integer().unwrap();
        let line = client.ask_text("CLIENT INFO");
        let names: Vec<&str> =
            line.trim_end().split(' ').map(|field| field.split('=').next().unwrap()).collect();
        let expected = "id addr laddr fd name age idle flags capa db sub psub ssub multi watch \
                        qbuf qbuf-free argv-mem multi-mem rbs rbp obl oll omem tot-mem events cmd \
                        user redir resp \
                        lib-name lib-ver tot-net-in tot-net-out tot-cmds";
        assert_eq!(names.join(" "), expected);
        let values = [
            ("id", id.to_string()),
            ("name", "me".into()),
            ("db", "3".into()),
            ("flags", "Ue".into()),
            ("cmd", "client|info".into()),
            ("resp", "3".into()),
            ("lib-name", "lib".into()),
            ("lib-ver", String::new()),
            ("user", "default".into()),
            ("tot-cmds", "6".into()),
        ];
        for (name, value) in values {
            assert_eq!(field(&line, name), value, "{name}");
        }
    });
}

#[test]
fn lists_are_of_all_workers() {
    each_backend(&[], |server| {
        let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
        let mut ids: Vec<i64> = clients
            .iter_mut()
            .map(|client| client.ask("CLIENT ID").as_integer().unwrap())
            .collect();
        ids.sort_unstable();
        let list = clients[0].ask_text("CLIENT LIST");
        let listed: Vec<i64> =
            list.lines().map(|line| field(line, "id").parse().unwrap()).collect();
        assert!(ids.iter().all(|id| listed.contains(id)), "{listed:?}");
        let two = clients[0].ask_text(&format!("CLIENT LIST ID {} 99999 {}", ids[1], ids[2]));
        assert_eq!(two.lines().count(), 2);
        assert_eq!(clients[0].ask_text("CLIENT LIST TYPE replica"), "");
    });
}

#[test]
fn killing_reaches_every_worker() {
    each_backend(&[], |server| {
        let mut killer = server.connect();
        let mut others: Vec<_> = (0..6).map(|_| server.connect()).collect();
        for other in &mut others {
            let id = other.ask("CLIENT ID").as_integer().unwrap();
            assert_eq!(killer.ask(&format!("CLIENT KILL ID {id}")).as_integer(), Some(1));
            assert!(other.ends(), "{}", server.name);
            assert_eq!(killer.ask_text(&format!("CLIENT LIST ID {id}")), "");
        }
        wait_until("all are gone", || {
            killer.ask_text("INFO clients").contains("connected_clients:1\r\n")
        });
    });
}

#[test]
fn killing_oneself_is_answered_first() {
    each_backend(&[], |server| {
        let mut client = server.connect();
        let id = client.ask("CLIENT ID").as_integer().unwrap();
        assert_eq!(client.ask(&format!("CLIENT KILL ID {id}")).as_integer(), Some(0));
        let answer = client.ask(&format!("CLIENT KILL ID {id} SKIPME no"));
        assert_eq!(answer.as_integer(), Some(1));
        assert!(client.ends());
    });
}

#[test]
fn unblock_refuses() {
    check(&[(
        "CLIENT UNBLOCK x; CLIENT UNBLOCK 1000000 soon; CLIENT UNBLOCK 1000000; CLIENT UNBLOCK -1; \
         CLIENT UNBLOCK",
        "-ERR value is not an integer or out of range; \
         -ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR; :0; :0; \
         -ERR wrong number of arguments for 'client|unblock' command",
    )]);
}
