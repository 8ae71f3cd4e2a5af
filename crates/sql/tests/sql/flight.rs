//! `kvasir-sql serve`, by the client that comes with arrow-flight: users, rows, updates, TLS.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::util::pretty::pretty_format_batches;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetTables, CommandGetXdbcTypeInfo,
    CommandStatementIngest, SqlInfo, TableDefinitionOptions, TableExistsOption,
    TableNotExistOption,
};
use arrow_flight::{FlightInfo, error::FlightError};
use futures::TryStreamExt;
use kvasir_harness::directory::Directory;
use kvasir_harness::server::{Server, free_port};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::support::{PROGRAM, TABLES, do_all, run, start, start_filled};

/// The endpoint, which ends with this.
struct Serve {
    child: Child,
    address: String,
}

impl Serve {
    fn start(server: &Server, args: &[&str]) -> Serve {
        let port = server.port().to_string();
        let mut child = Command::new(PROGRAM)
            .args(["--port", &port, "serve", "--listen", "127.0.0.1:0"])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut line = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("it says where it is");
        let address = line.trim().strip_prefix("ready at ").expect("it is ready").to_string();
        Serve { child, address }
    }

    fn port(&self) -> &str {
        self.address.rsplit(':').next().expect("it has one")
    }

    async fn client(&self, user: &str, password: &str) -> Result<Client, String> {
        let mut client = self.connect().await;
        client.0.handshake(user, password).await.map_err(|error| error.to_string())?;
        Ok(client)
    }

    /// A client that has not logged in.
    async fn connect(&self) -> Client {
        let url = self.address.replace("grpc", "http");
        let channel = Endpoint::from_shared(url).expect("a URL").connect().await;
        Client(FlightSqlServiceClient::new(channel.expect("it listens")))
    }

    /// One whose calls say who it is by such a header.
    async fn with_header(&self, header: &str) -> Client {
        let mut client = self.connect().await;
        client.0.set_header("authorization", header);
        client
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // One that is gone already is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Client(FlightSqlServiceClient<Channel>);

impl Client {
    async fn rows(&mut self, query: &str) -> Result<String, String> {
        let info = self.0.execute(query.to_string(), None).await;
        let info = info.map_err(|error| error.to_string())?;
        self.read(info).await.map_err(|error| error.to_string())
    }

    async fn read(&mut self, info: FlightInfo) -> Result<String, FlightError> {
        let mut batches = Vec::new();
        for endpoint in info.endpoint {
            let ticket = endpoint.ticket.expect("it has one");
            batches.extend(self.0.do_get(ticket).await?.try_collect::<Vec<_>>().await?);
        }
        Ok(pretty_format_batches(&batches)?.to_string())
    }

    async fn update(&mut self, text: &str) -> i64 {
        self.0.execute_update(text.to_string(), None).await.expect("it runs")
    }
}

fn with_users() -> Server {
    let server = start_filled();
    do_all(&server, &["ACL SETUSER ana on >secret ~user:* +@all"]);
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_those_of_the_server() {
    let server = with_users();
    let serve = Serve::start(&server, &[]);
    for (user, password) in [("ana", "wrong"), ("ana", ""), ("nobody", "secret")] {
        let why = serve.client(user, password).await.map(drop).expect_err("refused");
        assert!(why.to_lowercase().contains("authentic"), "{why}");
    }
    let mut ana = serve.client("ana", "secret").await.expect("admitted");
    for statement in TABLES.split_inclusive(';') {
        ana.update(statement.trim_end_matches(';')).await;
    }
    let found = ana.rows("SELECT name FROM users WHERE age > 29").await.expect("rows");
    assert!(found.contains("| n10  |"), "{found}");
    // Only keys that she may read.
    let found = ana.rows("SELECT count(*) AS n FROM orders").await.expect("rows");
    assert!(found.contains("| 0 |"), "{found}");
    let why = ana.rows("SELECT * FROM \"order:*\"").await.expect_err("refused");
    assert!(why.contains("NOPERM"), "{why}");
    // A token that nobody was given.
    ana.0.set_token("no such token".to_string());
    let why = ana.rows("SELECT 1").await.expect_err("refused");
    assert!(why.contains("log in again"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_taken_as_clients_send_it() {
    let server = with_users();
    let serve = Serve::start(&server, &[]);
    let who = "SELECT count(*) AS n FROM \"user:*\"";
    // With padding, without, as ADBC sends it, and with the scheme in another case.
    for header in ["Basic YW5hOnNlY3JldA==", "Basic YW5hOnNlY3JldA", "basic YW5hOnNlY3JldA=="] {
        let found = serve.with_header(header).await.rows(who).await;
        assert!(found.as_ref().is_ok_and(|rows| rows.contains("| 10 |")), "{header}: {found:?}");
    }
    for header in ["Basic YW5hOndyb25n", "Basic !", "Digest x"] {
        let why = serve.with_header(header).await.rows(who).await.expect_err("refused");
        assert!(why.to_lowercase().contains("authentic"), "{header}: {why}");
    }
    // Who has no token, and says so in its way, is the default user.
    for header in ["Bearer None", "Bearer ", "Bearer"] {
        let found = serve.with_header(header).await.rows(who).await;
        assert!(found.is_ok(), "{header}: {found:?}");
    }
    assert!(serve.connect().await.rows(who).await.is_ok());
    do_all(&server, &["ACL SETUSER default >word"]);
    let serve = Serve::start(&server, &[]);
    let why = serve.connect().await.rows(who).await.expect_err("refused");
    assert!(why.contains("unauthenticated: log in with user and password"), "{why}");
    let why = serve.with_header("Bearer None").await.rows(who).await.expect_err("refused");
    assert!(why.contains("unauthenticated: log in with user and password"), "{why}");
    let why = serve.with_header("Bearer x").await.rows(who).await.expect_err("refused");
    assert!(why.contains("unauthenticated: no login has this token"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_come_without_sql() {
    let server = start_filled();
    let serve = Serve::start(&server, &[]);
    let mut client = serve.connect().await;
    let batch = |ids: [&str; 2]| {
        // Keys are called so, and other texts are a column.
        let name = if ids[0].contains(':') { "__key" } else { "id" };
        let fields =
            [Field::new(name, DataType::Utf8, true), Field::new("n", DataType::Int64, true)];
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let ids = Arc::new(StringArray::from(ids.to_vec()));
        let numbers = Arc::new(Int64Array::from(vec![7, 8]));
        RecordBatch::try_new(schema, vec![ids, numbers]).expect("rows")
    };
    let ingest = |table: &str, if_not_exist: TableNotExistOption, if_exists: TableExistsOption| {
        let options = TableDefinitionOptions {
            if_not_exist: if_not_exist.into(),
            if_exists: if_exists.into(),
        };
        CommandStatementIngest {
            table_definition_options: Some(options),
            table: table.to_string(),
            ..CommandStatementIngest::default()
        }
    };
    use TableExistsOption::{Append, Fail, Replace};
    use TableNotExistOption::{Create, Fail as Missing};
    for (command, ids, expected) in [
        (ingest("t", Missing, Append), ["a", "b"], Err("there is no table t")),
        (ingest("t", Create, Fail), ["a", "a"], Err("two rows have the key 't:a'")),
        (ingest("t", Create, Fail), ["a", "b"], Ok(2)),
        (ingest("t", Create, Fail), ["c", "d"], Err("there is a table t already")),
        (ingest("t", Create, Replace), ["c", "d"], Err("would delete keys")),
        // There is no key in these rows.
        (ingest("t", Create, Append), ["c", "d"], Err("a row without __key")),
    ] {
        let rows = futures::stream::iter([Ok(batch(ids))]);
        let done = client.0.execute_ingest(command, rows).await.map_err(|error| error.to_string());
        match (&done, expected) {
            (Ok(count), Ok(expected)) => assert_eq!(*count, expected),
            (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
            _ => panic!("{done:?} {expected:?}"),
        }
    }
    let found = client.rows("SELECT id, n FROM t ORDER BY id").await.expect("rows");
    assert!(found.contains("| a  | 7 |") && found.contains("| b  | 8 |"), "{found}");
    let rows = futures::stream::iter([Ok(batch(["t:c", "t:d"]))]);
    let command = ingest("t", Missing, Append);
    assert_eq!(client.0.execute_ingest(command, rows).await.expect("written"), 2);
    let found = client.rows("SELECT count(*) AS n FROM t").await.expect("rows");
    assert!(found.contains("| 4 |"), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_tools_ask_on_connecting_is_answered() {
    let server = start_filled();
    do_all(&server, &["ZADD scores 1 a", "XADD log 1-1 n 1"]);
    let serve = Serve::start(&server, &[]);
    let mut client = serve.connect().await;
    for statement in TABLES.split_inclusive(';') {
        client.update(statement.trim_end_matches(';')).await;
    }
    let info = client.0.get_sql_info(Vec::new()).await.expect("asked");
    let facts = client.read(info).await.expect("rows");
    // All that there are, but for the versions of Substrait, which is not spoken.
    for fact in (0..=5).chain(8..=11).chain([100, 101]).chain(500..=576) {
        assert!(facts.contains(&format!("| {fact} ")), "{fact}: {facts}");
    }
    let info = client.0.get_xdbc_type_info(CommandGetXdbcTypeInfo::default()).await.expect("asked");
    let types = client.read(info).await.expect("rows");
    for name in ["text", "bytea", "bigint", "double", "decimal", "boolean", "date", "timestamp"] {
        assert!(types.contains(&format!("| {name} ")), "{types}");
    }
    let bigint = CommandGetXdbcTypeInfo { data_type: Some(-5) };
    let info = client.0.get_xdbc_type_info(bigint).await.expect("asked");
    let types = client.read(info).await.expect("rows");
    assert!(types.contains("| bigint ") && !types.contains("| text "), "{types}");
    for (table, columns) in [
        ("users", &["__key"][..]),
        ("score*", &["__key", "__member"]),
        ("lo*", &["__key", "__id"]),
        ("nothing", &[]),
    ] {
        let table = table.to_string();
        let command = CommandGetPrimaryKeys { table, ..CommandGetPrimaryKeys::default() };
        let info = client.0.get_primary_keys(command).await.expect("asked");
        let keys = client.read(info).await.expect("rows");
        assert_eq!(keys.matches("| kvasir ").count(), columns.len(), "{keys}");
        for column in columns {
            assert!(keys.contains(column), "{keys}");
        }
    }
    let command = CommandGetImportedKeys { table: "users".into(), ..Default::default() };
    let info = client.0.get_imported_keys(command).await.expect("asked");
    let keys = client.read(info).await.expect("rows");
    assert!(!keys.contains("users"), "{keys}");
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_write_and_are_prepared() {
    let server = with_users();
    let serve = Serve::start(&server, &[]);
    let mut ana = serve.client("ana", "secret").await.expect("admitted");
    ana.update(TABLES.split(';').next().expect("a statement")).await;
    assert_eq!(ana.update("INSERT INTO users VALUES ('user:11', 'Ada', 36, 'Rome')").await, 1);
    // As a query it is done when it is asked where its rows are, and once.
    let insert = "INSERT INTO users VALUES ('user:12', NULL, 40, 'Rome')";
    let info = ana.0.execute(insert.to_string(), None).await.expect("it runs");
    let found = ana.rows("SELECT count(*) AS n FROM users WHERE age = 40").await.expect("rows");
    assert!(found.contains("| 1 |"), "{found}");
    do_all(&server, &["DEL user:12"]);
    let count = ana.read(info).await.expect("rows");
    assert!(count.contains("| count |") && count.contains("| 1     |"), "{count}");
    let found = ana.rows("SELECT count(*) AS n FROM users WHERE age = 40").await.expect("rows");
    assert!(found.contains("| 0 |"), "{found}");
    let drop = ana.0.execute("DROP TABLE users".to_string(), None).await.expect("it runs");
    assert!(drop.endpoint.is_empty());
    ana.update(TABLES.split(';').next().expect("a statement")).await;

    let query = "SELECT name FROM users WHERE age > $1 ORDER BY age";
    let mut prepared = ana.0.prepare(query.to_string(), None).await.expect("prepared");
    assert_eq!(prepared.dataset_schema().expect("a schema").field(0).name(), "name");
    let parameters = prepared.parameter_schema().expect("a schema").clone();
    assert_eq!(parameters.field(0).data_type(), &DataType::Int64);
    let schema = Schema::new(vec![Field::new("$1", DataType::Int64, true)]);
    let row = Arc::new(Int64Array::from(vec![29]));
    let row = RecordBatch::try_new(Arc::new(schema), vec![row]).expect("a row");
    prepared.set_parameters(row).expect("they are bound");
    let info = prepared.execute().await.expect("it runs");
    let found = ana.read(info).await.expect("rows");
    assert!(found.contains("n10") && found.contains("Ada") && !found.contains("n9"), "{found}");
    prepared.close().await.expect("closed");

    let insert = "INSERT INTO users (__key, age) VALUES ('user:' || CAST($1 AS TEXT), $1)";
    let mut prepared = ana.0.prepare(insert.to_string(), None).await.expect("prepared");
    assert!(prepared.dataset_schema().expect("a schema").fields().is_empty());
    let schema = Schema::new(vec![Field::new("$1", DataType::Int64, true)]);
    let rows = Arc::new(Int64Array::from(vec![71, 72, 73]));
    let rows = RecordBatch::try_new(Arc::new(schema), vec![rows]).expect("rows");
    prepared.set_parameters(rows).expect("they are bound");
    assert_eq!(prepared.execute_update().await.expect("it runs"), 3);
    let found = ana.rows("SELECT sum(age) AS s FROM users WHERE age > 70").await.expect("rows");
    assert!(found.contains("| 216 |"), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_refused_here_too() {
    let server = with_users();
    let serve = Serve::start(&server, &[]);
    let mut ana = serve.client("ana", "secret").await.expect("admitted");
    for text in [
        "COPY (SELECT 1) TO '/tmp/kvasir-sql-served.csv'",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
    ] {
        let why = ana.rows(text).await.expect_err("refused");
        assert!(why.contains("--allow-files"), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_there_is_can_be_asked() {
    let server = start_filled();
    let directory = Directory::new().expect("a folder");
    let init = directory.path().join("init.sql");
    std::fs::write(&init, TABLES).expect("written");
    let serve = Serve::start(&server, &["--init", init.to_str().expect("text")]);
    do_all(&server, &["ACL SETUSER default >word"]);
    let mut client = serve.client("default", "word").await.expect("admitted");
    let info = client.0.get_catalogs().await.expect("asked");
    assert!(client.read(info).await.expect("rows").contains("| kvasir "));
    let wish = CommandGetTables { include_schema: true, ..CommandGetTables::default() };
    let info = client.0.get_tables(wish).await.expect("asked");
    let tables = client.read(info).await.expect("rows");
    assert!(tables.contains(" orders ") && tables.contains(" users "), "{tables}");
    let info = client.0.get_sql_info(vec![SqlInfo::FlightSqlServerName]).await.expect("asked");
    assert!(client.read(info).await.expect("rows").contains("Kvasir"));
    let info = client.0.get_table_types().await.expect("asked");
    assert!(client.read(info).await.expect("rows").contains("TABLE"));
}

/// Certificate and key for `localhost`, by themselves.
fn certificate(directory: &Directory) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("made");
    let (cert, key) = (directory.path().join("cert"), directory.path().join("key"));
    std::fs::write(&cert, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let text = |path: std::path::PathBuf| path.to_str().expect("text").to_string();
    (text(cert), text(key))
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_speak_tls() {
    let directory = Directory::new().expect("a folder");
    let (cert, key) = certificate(&directory);
    let tls_port = free_port().expect("a port").to_string();
    let options = ["--tls-port", &tls_port, "--tls-cert-file", &cert, "--tls-key-file", &key];
    let server =
        start(&[&options[..], &["--tls-ca-cert-file", &cert, "--tls-auth-clients", "no"]].concat());
    do_all(&server, &["ACL SETUSER ana on >secret ~* +@all", "SET greeting hello"]);

    let tls_port: u16 = tls_port.parse().expect("a number");
    let query = ["--format", "csv", "-c", "SELECT __value FROM \"greeting*\""];
    let output =
        run(tls_port, &[&["-h", "localhost", "--tls", "--cacert", &cert], &query[..]].concat());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "__value\nhello\n");
    let output = run(tls_port, &[&["-h", "localhost", "--tls", "--insecure"], &query[..]].concat());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "__value\nhello\n");
    let output = run(tls_port, &[&["-h", "localhost", "--tls"], &query[..]].concat());
    assert!(!output.status.success(), "nobody else has signed it");

    let serve = Serve::start(&server, &["--tls-cert", &cert, "--tls-key", &key]);
    let authority = Certificate::from_pem(std::fs::read(&cert).expect("it is there"));
    let tls = ClientTlsConfig::new().ca_certificate(authority).domain_name("localhost");
    let url = format!("https://localhost:{}", serve.port());
    let endpoint = Endpoint::from_shared(url).expect("a URL").tls_config(tls).expect("a setting");
    let channel = endpoint.connect().await.expect("it speaks TLS");
    let mut client = FlightSqlServiceClient::new(channel);
    client.handshake("ana", "secret").await.expect("admitted");
    let found = Client(client).rows("SELECT __value FROM \"greeting*\"").await.expect("rows");
    assert!(found.contains("hello"), "{found}");
}

#[test]
fn passwords_do_not_go_through_the_network_in_the_clear() {
    let server = start(&[]);
    let output = run(server.port(), &["serve", "--listen", "0.0.0.0:0"]);
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && why.contains("--plaintext"), "{why}");
}
