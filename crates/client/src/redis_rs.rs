//! A connection of the crate `redis` through a ring: whatever takes a `redis::ConnectionLike`.

use std::io::{self, Write};
use std::path::Path;

use redis::{ConnectionLike, Parser, RedisResult, ServerError, Value};

use crate::{Connection, Options};

/// Through a ring, or over the unix socket that has none.
pub struct RedisConnection {
    connection: Connection,
    parser: Parser,
    is_open: bool,
}

impl RedisConnection {
    pub fn open(path: impl AsRef<Path>, options: &Options) -> io::Result<RedisConnection> {
        Ok(RedisConnection::over(Connection::open(path, options)?))
    }

    pub fn over(connection: Connection) -> RedisConnection {
        RedisConnection { connection, parser: Parser::new(), is_open: true }
    }

    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    fn send(&mut self, requests: &[u8]) -> RedisResult<()> {
        if !self.is_open {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        }
        let sent = self.connection.write_all(requests);
        self.is_open &= sent.is_ok();
        Ok(sent?)
    }

    fn receive(&mut self) -> RedisResult<Value> {
        let reply = self.parser.parse_value(&mut self.connection);
        // Whatever has failed: where the next reply begins is not known any more.
        self.is_open &= reply.is_ok();
        reply
    }
}

impl ConnectionLike for RedisConnection {
    fn req_packed_command(&mut self, request: &[u8]) -> RedisResult<Value> {
        self.send(request)?;
        self.receive()?.extract_error()
    }

    fn req_packed_commands(
        &mut self,
        requests: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        self.send(requests)?;
        let mut replies = Vec::with_capacity(count);
        let mut refused: Option<ServerError> = None;
        for index in 0..offset + count {
            let reply = self.receive()?;
            match reply {
                Value::ServerError(error) if index < offset => {
                    refused.get_or_insert(error);
                }
                reply if index >= offset => replies.push(reply),
                _ => {}
            }
        }
        match refused {
            Some(error) => Err(error.into()),
            None => Ok(replies),
        }
    }

    fn get_db(&self) -> i64 {
        0
    }

    fn check_connection(&mut self) -> bool {
        redis::cmd("PING").query::<String>(self).is_ok()
    }

    fn is_open(&self) -> bool {
        self.is_open
    }
}
