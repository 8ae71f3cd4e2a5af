//! `cargo xtask replay`: many connections change the same few keys on four workers, by calls,
//! transactions and scripts, while the append-only file is written and rewritten. The server is
//! killed; what its files give, here and in Redis, is what memory held.
//!
//! Entries that concern the same key have to stand in the log in the order in which they happened,
//! and those of a transaction together: any other order gives other data, sooner or later.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use kvasir_harness::kvasir::{self, Backends};
use kvasir_harness::link::Link;
use kvasir_harness::oracle::Oracle;
use kvasir_harness::random::Random;
use kvasir_harness::server::{Launch, Server};

const WORKERS: usize = 4;
const CONNECTIONS: u64 = 8;
/// Keys of each kind, in each database.
const KEYS: usize = 3;
const DATABASES: usize = 3;
/// How often a rewrite is asked for.
const REWRITE: Duration = Duration::from_millis(1500);
const FOLDER: &str = "appendonlydir";
const MANIFEST: &str = "appendonly.aof.manifest";

/// What is called; `@x` is a key of the kind `x`, `#` a number, `%` a word.
/// Scores are whole numbers: Redis 7.0 has others in its digests with 17 digits, Valkey with fewer.
static CALLS: &[&str] = &[
    "SET @s %",
    "APPEND @s %",
    "SETRANGE @s # %",
    "GETDEL @s",
    "GETEX @s EX 5000",
    "INCRBY @i #",
    "DECR @i",
    "INCRBYFLOAT @i 0.5",
    "SETBIT @b # 1",
    "BITFIELD @b INCRBY u8 # 3",
    "RPUSH @l % #",
    "LPUSH @l %",
    "LPOP @l",
    "RPOPLPUSH @l @l",
    "BLMOVE @l @l LEFT RIGHT 0.01",
    "BLPOP @l 0.01",
    "LTRIM @l 0 40",
    "LINSERT @l BEFORE # %",
    "LREM @l 0 #",
    "SADD @S % #",
    "SREM @S #",
    "SPOP @S 2",
    "SMOVE @S @S #",
    "SUNIONSTORE @S @S @S",
    "HSET @h % # # %",
    "HINCRBY @h n #",
    "HINCRBYFLOAT @h f 1.25",
    "HDEL @h #",
    "ZADD @z # % # #",
    "ZINCRBY @z # #",
    "ZPOPMIN @z",
    "ZREMRANGEBYRANK @z 30 -1",
    "ZUNIONSTORE @z 2 @z @z AGGREGATE MAX",
    "XADD @x MAXLEN 20 * % #",
    "XTRIM @x MAXLEN 5",
    "PFADD @p % #",
    "DEL @l @s",
    "RENAME @S @S",
    "COPY @h @h REPLACE",
    "EXPIRE @z 5000",
    "PERSIST @z",
    "SORT @l ALPHA STORE @l",
];

/// Calls that stop the world; one in so many.
static RARE: &[&str] = &["SWAPDB 1 2", "FLUSHDB ASYNC", "MOVE @s 1"];
const RARE_ONE_IN: u64 = 2000;

static SCRIPT: &str = "local n = redis.call('INCR', KEYS[1]) \
     redis.pcall('RPUSH', KEYS[2], n) \
     if n % 3 == 0 then redis.pcall('SPOP', KEYS[3]) end \
     redis.pcall('LTRIM', KEYS[2], -30, -1)";

#[derive(clap::Args)]
pub struct Options {
    /// How long keys are changed, on each backend
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    #[command(flatten)]
    backends: Backends,
    /// Add a call to the log that was never made: the run has to fail
    #[arg(long)]
    canary: bool,
}

pub fn main(options: &Options) -> Result<()> {
    options.backends.each(|backend| replay(backend, options.seconds, options.canary))
}

/// One run on one backend.
pub fn replay(backend: &str, seconds: u64, canary: bool) -> Result<()> {
    let options = ["--rdb-version", "10", "--enable-debug-command", "yes"];
    let files = ["--appendonly", "yes", "--snapshot-files", "1"];
    let launch = kvasir::launch(backend, WORKERS, &[&options[..], &files].concat())?;
    let mut source = Server::start(&launch)?;
    let calls = AtomicU64::new(0);
    change_for(Duration::from_secs(seconds), &source, &calls, backend)?;
    let mut link = connect(&source)?;
    let wanted = digests(&mut link)?;
    wait_for_disk(&mut link)?;
    source.kill();
    let folder = source.dir().join(FOLDER);
    if canary {
        add_call(&folder)?;
    }
    let theirs = source.dir().join("redis");
    copy(&folder, &theirs.join(FOLDER))?;
    let ours = launch.with_dir(source.dir());
    compare("Kvasir", &ours, &wanted)?;
    let redis = Oracle::redis()?.program;
    let args = "--unixsocket socket --appendonly yes --enable-debug-command yes";
    let args = args.split(' ').map(str::to_string).collect();
    let theirs = Launch { program: redis, args, cores: None }.with_dir(&theirs);
    compare("Redis", &theirs, &wanted)?;
    println!("replay on {backend}: {} calls give the same data again", calls.load(SeqCst));
    Ok(())
}

/// Has all connections change keys, and the files rewritten now and then.
fn change_for(time: Duration, server: &Server, calls: &AtomicU64, backend: &str) -> Result<()> {
    let is_over = AtomicBool::new(false);
    let bar = ProgressBar::new(time.as_secs());
    let style = format!("replay on {backend} {{wide_bar}} {{pos}}/{{len}} s");
    bar.set_style(ProgressStyle::with_template(&style)?);
    thread::scope(|scope| {
        let change = |seed| {
            let (is_over, calls) = (&is_over, calls);
            scope.spawn(move || change(server, seed, is_over, calls))
        };
        let writers: Vec<_> = (0..CONNECTIONS).map(change).collect();
        let rewritten = rewrite_for(time, server, &bar);
        is_over.store(true, SeqCst);
        let changed = writers.into_iter().map(|writer| match writer.join() {
            Ok(result) => result,
            Err(_) => bail!("a writer panicked"),
        });
        changed.collect::<Result<Vec<()>>>().and(rewritten)
    })?;
    bar.finish_and_clear();
    Ok(())
}

fn rewrite_for(time: Duration, server: &Server, bar: &ProgressBar) -> Result<()> {
    let (mut link, begin) = (connect(server)?, Instant::now());
    while begin.elapsed() < time {
        thread::sleep(REWRITE.min(time));
        let reply = link.ask(&["BGREWRITEAOF"])?;
        let is_busy = || format!("{reply:?}").contains("in progress");
        ensure!(!reply.is_error() || is_busy(), "{reply:?}");
        bar.set_position(begin.elapsed().as_secs());
    }
    Ok(())
}

/// One connection; errors of calls are as good as others, those of transactions too.
fn change(server: &Server, seed: u64, is_over: &AtomicBool, calls: &AtomicU64) -> Result<()> {
    let (mut link, mut random) = (connect(server)?, Random::new(seed));
    while !is_over.load(SeqCst) {
        let db = random.below(DATABASES).to_string();
        link.ask(&["SELECT", &db])?;
        match random.below(10) {
            0 | 1 => {
                link.ask(&["MULTI"])?;
                for _ in 0..random.range(2, 6) {
                    send(&mut link, &call(&mut random))?;
                }
                link.ask(&["EXEC"])?;
            }
            2 => {
                let keys = ["@i", "@l", "@S"].map(|word| fill(word, &mut random));
                link.ask(&["EVAL", SCRIPT, "3", &keys[0], &keys[1], &keys[2]])?;
            }
            _ => send(&mut link, &call(&mut random))?,
        }
        calls.fetch_add(1, SeqCst);
    }
    Ok(())
}

fn call(random: &mut Random) -> Vec<String> {
    let from = if random.once_in(RARE_ONE_IN) { RARE } else { CALLS };
    random.pick(from).split(' ').map(|word| fill(word, random)).collect()
}

fn fill(word: &str, random: &mut Random) -> String {
    match word.as_bytes() {
        [b'@', kind] => format!("{}{}", *kind as char, random.below(KEYS)),
        b"#" => random.below(40).to_string(),
        b"%" => "word".repeat(random.below(20)) + &random.below(100).to_string(),
        _ => word.to_string(),
    }
}

fn send(link: &mut Link, call: &[String]) -> Result<()> {
    let words: Vec<&str> = call.iter().map(String::as_str).collect();
    link.ask(&words).map(drop).with_context(|| call.join(" "))
}

fn connect(server: &Server) -> Result<Link> {
    Link::connect(&server.dir().join("socket"))
}

/// The digest of each key with its database.
type Digests = BTreeMap<String, String>;

fn digests(link: &mut Link) -> Result<Digests> {
    let mut digests = Digests::new();
    for db in 0..DATABASES {
        link.ask(&["SELECT", &db.to_string()])?;
        for key in link.ask(&["KEYS", "*"])?.items() {
            let key = String::from_utf8(key.text().unwrap_or_default().to_vec())?;
            let reply = link.ask(&["DEBUG", "DIGEST-VALUE", &key])?;
            ensure!(!reply.is_error(), "{reply:?}");
            digests.insert(format!("{key} in {db}"), format!("{reply:?}"));
        }
    }
    Ok(digests)
}

/// Returns when all is on disk: what the connection writes comes behind it.
fn wait_for_disk(link: &mut Link) -> Result<()> {
    link.ask(&["SET", "last", "1"])?;
    link.ask(&["DEL", "last"])?;
    let reply = link.ask(&["WAITAOF", "1", "0", "0"])?;
    ensure!(reply.items().first().and_then(|item| item.text()) == Some(b"1"), "{reply:?}");
    Ok(())
}

/// Loads the files in a directory, and compares with what is wanted.
fn compare(who: &str, launch: &Launch, wanted: &Digests) -> Result<()> {
    let server = Server::start(launch)?;
    let dir = launch.args.last().context("the directory is the last word")?;
    let mut link = Link::connect(&Path::new(dir).join("socket"))?;
    let found = digests(&mut link)?;
    let all: BTreeSet<_> = wanted.keys().chain(found.keys()).collect();
    let other: Vec<_> = all.into_iter().filter(|key| wanted.get(*key) != found.get(*key)).collect();
    ensure!(other.is_empty(), "{who} finds other data: {other:?}\n{}", server.log());
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Adds a call to the last increment of the manifest. The folder may have one more, of a rewrite
/// that the kill came before.
fn add_call(folder: &Path) -> Result<()> {
    let manifest = fs::read_to_string(folder.join(MANIFEST))?;
    let last = manifest.lines().rfind(|line| line.ends_with(" type i"));
    let name = last.and_then(|line| line.split(' ').nth(1));
    let path = folder.join(name.context("there is no increment")?);
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.write_all(b"*3\r\n$3\r\nSET\r\n$6\r\ncanary\r\n$1\r\n1\r\n")?;
    Ok(())
}
