//! The crate `redis` by futures over a connection of ours. With the feature `redis-aio` only.
#![cfg(feature = "redis-aio")]

use kvasir_client::aio::{AsyncConnection, connect};
use kvasir_client::{Connection, Options};
use kvasir_harness::kvasir;
use kvasir_harness::server::Server;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, RedisResult};

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("there are descriptors").block_on(future)
}

#[test]
fn the_crate_redis_speaks_through_a_ring_by_futures() {
    for backend in kvasir::BACKENDS {
        let launch = kvasir::launch(backend, 2, &[]).expect("it is built");
        let mut server = Server::start(&launch).expect("it starts");
        let socket = server.dir().join("socket");
        run(async {
            for socket_only in [true, false] {
                let options = Options { socket_only, is_quiet: true, ..Options::default() };
                let connection = Connection::open(&socket, &options).expect("it listens");
                assert_ne!(connection.has_ring(), socket_only);
                drop(AsyncConnection::new(connection).expect("there are descriptors"));
                let (mut client, driver) = connect(&socket, &options).await.expect("it listens");
                tokio::spawn(driver);
                speak(&mut client).await;
                if !socket_only {
                    server.kill();
                    let gone: RedisResult<i64> = client.incr("a", 1).await;
                    gone.expect_err("the server has gone");
                }
            }
        });
    }
}

async fn speak(client: &mut MultiplexedConnection) {
    // Several times what a ring holds, both ways.
    let large = vec![7; 3_000_000];
    let () = client.set("large", &large).await.expect("it is stored");
    assert_eq!(client.get::<_, Vec<u8>>("large").await.expect("it is there"), large);
    let mut pipe = redis::pipe();
    pipe.atomic().set("a", 1).ignore().incr("a", 2).get("a");
    let numbers: (i64, i64) = pipe.query_async(client).await.expect("numbers");
    assert_eq!(numbers, (3, 3));
    let wrong: RedisResult<i64> = client.lpush("a", 1).await;
    assert_eq!(wrong.expect_err("it is no list").code(), Some("WRONGTYPE"));

    // Many at once, of clones in tasks of their own.
    let () = client.del("sum").await.expect("it is gone");
    let tasks: Vec<_> = (0..50).map(|_| tokio::spawn(count(client.clone()))).collect();
    for task in tasks {
        task.await.expect("it ends");
    }
    assert_eq!(client.get::<_, i64>("sum").await.expect("a number"), 1000);
}

async fn count(mut client: MultiplexedConnection) {
    for _ in 0..20 {
        let _: i64 = client.incr("sum", 1).await.expect("a number");
    }
}
