//! The crate `redis` over a connection of ours, on a server of ours. With the feature `redis` only.
#![cfg(feature = "redis")]

use kvasir_client::Options;
use kvasir_client::redis_rs::RedisConnection;
use kvasir_harness::kvasir;
use kvasir_harness::server::Server;
use redis::{Commands, ConnectionLike, RedisResult};

#[test]
fn the_crate_redis_speaks_through_a_ring() {
    for backend in kvasir::BACKENDS {
        let launch = kvasir::launch(backend, 2, &[]).expect("it is built");
        let server = Server::start(&launch).expect("it starts");
        let socket = server.dir().join("socket");
        let mut client =
            RedisConnection::open(&socket, &Options::default()).expect("the server listens");
        assert!(client.connection().has_ring());
        speak(&mut client);

        let over_socket = Options { socket_only: true, ..Options::default() };
        let mut client = RedisConnection::open(&socket, &over_socket).expect("it listens");
        assert!(!client.connection().has_ring());
        speak(&mut client);
    }
}

fn speak(client: &mut RedisConnection) {
    let large = vec![7; 1_000_000];
    let () = client.set("large", &large).expect("it is stored");
    assert_eq!(client.get::<_, Vec<u8>>("large").expect("it is there"), large);
    let mut pipe = redis::pipe();
    pipe.set("a", 1).ignore().incr("a", 2).get("a");
    assert_eq!(pipe.query::<(i64, i64)>(client).expect("numbers"), (3, 3));
    pipe.atomic();
    assert_eq!(pipe.query::<(i64, i64)>(client).expect("numbers"), (3, 3));
    let wrong: RedisResult<i64> = client.lpush("a", 1);
    assert_eq!(wrong.expect_err("it is no list").code(), Some("WRONGTYPE"));
    assert!(client.check_connection() && client.is_open());
}
