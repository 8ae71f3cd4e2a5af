//! What is asked for on the command line. Who to ask is said in redis-cli's words.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

use crate::output::Format;

/// SQL over the keys of a Kvasir: a shell, or with `serve` an endpoint of Arrow Flight SQL.
#[derive(Parser)]
#[command(name = "kvasir-sql", version, disable_help_flag = true)]
pub struct Flags {
    #[command(flatten)]
    pub place: PlaceFlags,
    #[command(flatten)]
    pub limits: Limits,
    /// Runs these statements and ends; may be given several times
    #[arg(short = 'c', long = "command", value_name = "SQL")]
    pub commands: Vec<String>,
    /// Runs the statements of a file and ends
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// How rows are shown
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Where the rows go instead of to the terminal
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(subcommand)]
    pub action: Option<Action>,
}

/// What else the program does.
#[derive(Subcommand)]
pub enum Action {
    /// Answers clients of Arrow Flight SQL: ADBC, JDBC
    #[command(disable_help_flag = true)]
    Serve(ServeFlags),
}

/// Where clients are answered, and how.
#[derive(Args)]
pub struct ServeFlags {
    /// Address and port to listen at; port 0 is any that is free
    #[arg(long, default_value = "127.0.0.1:32010")]
    pub listen: String,
    /// Certificate that clients are shown, in PEM
    #[arg(long, requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key
    #[arg(long, requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Takes passwords without TLS from other machines than this one
    #[arg(long)]
    pub plaintext: bool,
    /// Statements that every session begins with, such as CREATE EXTERNAL TABLE
    #[arg(long, value_name = "FILE")]
    pub init: Option<PathBuf>,
}

/// Which server, and as whom.
#[derive(Args)]
pub struct PlaceFlags {
    /// Prints this
    #[arg(long, action = ArgAction::Help, global = true)]
    pub help: Option<bool>,
    #[arg(short = 'h', long, default_value = "127.0.0.1", global = true)]
    pub host: String,
    #[arg(short, long, default_value_t = 6379, global = true)]
    pub port: u16,
    /// A unix socket instead of host and port
    #[arg(short, long, global = true)]
    pub socket: Option<PathBuf>,
    #[arg(long, global = true)]
    pub user: Option<String>,
    /// The environment's REDISCLI_AUTH if not given
    #[arg(short = 'a', long, visible_alias = "pass", global = true)]
    pub password: Option<String>,
    /// All of the above: redis://user:password@host:port/db, or rediss://
    #[arg(short, long, global = true)]
    pub uri: Option<String>,
    /// The number of the database
    #[arg(short = 'n', long, default_value_t = 0, global = true)]
    pub db: i64,
    #[arg(long, global = true)]
    pub tls: bool,
    /// Who has signed the server's certificate, in PEM; those whom the system trusts if not given
    #[arg(long, value_name = "FILE", global = true)]
    pub cacert: Option<PathBuf>,
    /// The client's certificate
    #[arg(long, value_name = "FILE", requires = "key", global = true)]
    pub cert: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", requires = "cert", global = true)]
    pub key: Option<PathBuf>,
    /// Believes any certificate
    #[arg(long, global = true)]
    pub insecure: bool,
}

/// What a text of SQL may do.
#[derive(Args, Clone)]
pub struct Limits {
    /// Lets SQL read and write files: COPY, tables of CSV, JSON and Arrow
    #[arg(long, global = true)]
    pub allow_files: bool,
    /// MiB that queries may take together; sorts and joins go to temporary files beyond it
    #[arg(long, default_value_t = 1024, global = true)]
    pub memory: usize,
    /// How many of a pattern's keys are looked at to guess its columns
    #[arg(long, default_value_t = 100, global = true)]
    pub sample: usize,
    /// Shows as null what does not fit its column's type, instead of failing
    #[arg(long, global = true)]
    pub nulls: bool,
}
