//! Transfers between accounts, and readers who must always see the same sum.

use std::ops::Range;

use anyhow::{Context, Result, ensure};
use kvasir_harness::link::{Call, Link};
use kvasir_harness::random::Random;
use kvasir_harness::raw::Raw;

use super::Role;

/// Each in a slot of its own. So few that transfers meet.
const ACCOUNTS: usize = 24;
const OPENING_BALANCE: i64 = 1000;
const SUM: i64 = ACCOUNTS as i64 * OPENING_BALANCE;
const AMOUNT_MAX: i64 = 9;

/// Of two keys that it was given, so that it locks their slots only.
const TRANSFER_DECLARED: &str = "local from = redis.call('GET', KEYS[1]) \
     redis.call('SET', KEYS[1], from - ARGV[1]) \
     local to = redis.call('GET', KEYS[2]) \
     redis.call('SET', KEYS[2], to + ARGV[1])";
/// Of keys that nobody can know before it runs.
const TRANSFER_UNDECLARED: &str = "redis.call('DECRBY', 'account' .. ARGV[1], ARGV[3]) \
     redis.call('INCRBY', 'account' .. ARGV[2], ARGV[3])";
const SUM_DECLARED: &str = "local sum = 0 for i = 1, #KEYS do \
     sum = sum + redis.call('GET', KEYS[i]) end return sum";
const SUM_UNDECLARED: &str = "local sum = 0 for i = 0, ARGV[1] - 1 do \
     sum = sum + redis.call('GET', 'account' .. i) end return sum";

/// All who transfer and all who look.
pub fn roles(canary: bool) -> Vec<Role> {
    let mut roles = Vec::new();
    for _ in 0..2 {
        roles.extend([
            Role::new("transfers by MULTI", by_multi),
            Role::new("by WATCH", by_watch),
            Role::new("by scripts", by_declared_script),
            Role::new("by scripts with undeclared keys", by_undeclared_script),
            Role::new("sums by MULTI", sum_by_multi),
            Role::new("by MGET", sum_by_mget),
            Role::new("by scripts reading declared keys", sum_by_declared_script),
        ]);
    }
    roles.push(Role::new("by scripts reading undeclared keys", sum_by_undeclared_script));
    roles.push(Role::new("flushes beside them", flush));
    if canary {
        roles.push(Role::new("transfers in two calls", by_two_calls));
    }
    roles
}

pub fn open(link: &mut Link) -> Result<()> {
    let balance = OPENING_BALANCE.to_string();
    all().try_for_each(|account| link.ask(&["SET", &account, &balance]).map(drop))
}

fn all() -> impl Iterator<Item = String> {
    (0..ACCOUNTS).map(|index| format!("account{index}"))
}

/// Two accounts and how much goes from the first to the second.
struct Transfer {
    from: usize,
    to: usize,
    amount: i64,
}

impl Transfer {
    fn draw(random: &mut Random) -> Transfer {
        let from = random.below(ACCOUNTS);
        let to = (from + 1 + random.below(ACCOUNTS - 1)) % ACCOUNTS;
        Transfer { from, to, amount: random.range(1, AMOUNT_MAX) }
    }

    fn keys(&self) -> [String; 2] {
        [self.from, self.to].map(|index| format!("account{index}"))
    }
}

fn by_multi(link: &mut Link, random: &mut Random) -> Result<()> {
    let transfer = Transfer::draw(random);
    let ([from, to], amount) = (transfer.keys(), transfer.amount.to_string());
    let calls = [
        words(&["MULTI"]),
        words(&["DECRBY", &from, &amount]),
        words(&["INCRBY", &to, &amount]),
        words(&["EXEC"]),
    ];
    let replies = pipeline(link, &calls)?;
    let results = replies[3].items();
    ensure!(results.len() == 2 && !results.iter().any(Raw::is_error), "EXEC -> {:?}", replies[3]);
    Ok(())
}

/// Reads, then writes what it has computed, until nobody came between.
fn by_watch(link: &mut Link, random: &mut Random) -> Result<()> {
    let transfer = Transfer::draw(random);
    let [from, to] = transfer.keys();
    loop {
        let reads = [words(&["WATCH", &from, &to]), words(&["MGET", &from, &to])];
        let replies = pipeline(link, &reads)?;
        let balances = numbers(replies[1].items())?;
        ensure!(balances.len() == 2, "MGET -> {:?}", replies[1]);
        let new = [balances[0] - transfer.amount, balances[1] + transfer.amount];
        let writes = [
            words(&["MULTI"]),
            words(&["SET", &from, &new[0].to_string()]),
            words(&["SET", &to, &new[1].to_string()]),
            words(&["EXEC"]),
        ];
        let exec = pipeline(link, &writes)?.pop().context("no reply to EXEC")?;
        ensure!(!exec.is_error(), "EXEC -> {exec:?}");
        if exec.items().len() == 2 {
            return Ok(());
        }
    }
}

fn by_declared_script(link: &mut Link, random: &mut Random) -> Result<()> {
    let transfer = Transfer::draw(random);
    let ([from, to], amount) = (transfer.keys(), transfer.amount.to_string());
    no_error(link.ask(&["EVAL", TRANSFER_DECLARED, "2", &from, &to, &amount])?)
}

fn by_undeclared_script(link: &mut Link, random: &mut Random) -> Result<()> {
    let Transfer { from, to, amount } = Transfer::draw(random);
    let [from, to, amount] = [from as i64, to as i64, amount].map(|number| number.to_string());
    no_error(link.ask(&["EVAL", TRANSFER_UNDECLARED, "0", &from, &to, &amount])?)
}

/// The planted fault: whoever looks between the two calls sees another sum.
fn by_two_calls(link: &mut Link, random: &mut Random) -> Result<()> {
    let transfer = Transfer::draw(random);
    let ([from, to], amount) = (transfer.keys(), transfer.amount.to_string());
    link.ask(&["DECRBY", &from, &amount])?;
    link.ask(&["INCRBY", &to, &amount])?;
    Ok(())
}

/// Takes the whole world for itself, in databases without accounts.
fn flush(link: &mut Link, random: &mut Random) -> Result<()> {
    no_error(link.ask(&["SELECT", "7"])?)?;
    no_error(link.ask(&["SET", &format!("k{}", random.below(100)), "v"])?)?;
    let alone = [&["FLUSHDB"][..], &["SWAPDB", "7", "8"]];
    no_error(link.ask(alone[random.below(alone.len())])?)
}

fn sum_by_multi(link: &mut Link, _: &mut Random) -> Result<()> {
    let gets = all().map(|account| words(&["GET", &account]));
    let calls: Vec<Call> =
        [words(&["MULTI"])].into_iter().chain(gets).chain([words(&["EXEC"])]).collect();
    let exec = pipeline(link, &calls)?.pop().context("no reply to EXEC")?;
    check(numbers(exec.items())?.iter().sum())
}

fn sum_by_mget(link: &mut Link, _: &mut Random) -> Result<()> {
    let reply = link.call(&with_accounts(&["MGET"], 0..ACCOUNTS))?;
    check(numbers(reply.items())?.iter().sum())
}

fn sum_by_declared_script(link: &mut Link, _: &mut Random) -> Result<()> {
    let count = ACCOUNTS.to_string();
    let reply = link.call(&with_accounts(&["EVAL", SUM_DECLARED, &count], 0..ACCOUNTS))?;
    check(reply.integer().with_context(|| format!("EVAL -> {reply:?}"))?)
}

fn sum_by_undeclared_script(link: &mut Link, _: &mut Random) -> Result<()> {
    let reply = link.ask(&["EVAL", SUM_UNDECLARED, "0", &ACCOUNTS.to_string()])?;
    check(reply.integer().with_context(|| format!("EVAL -> {reply:?}"))?)
}

fn check(sum: i64) -> Result<()> {
    ensure!(sum == SUM, "a sum of {sum} instead of {SUM}");
    Ok(())
}

fn no_error(reply: Raw) -> Result<()> {
    ensure!(!reply.is_error(), "{reply:?}");
    Ok(())
}

fn numbers(items: &[Raw]) -> Result<Vec<i64>> {
    let number = |item: &Raw| -> Result<i64> {
        let text = std::str::from_utf8(item.text().context("an account is gone")?)?;
        Ok(text.parse()?)
    };
    items.iter().map(number).collect()
}

fn pipeline(link: &mut Link, calls: &[Call]) -> Result<Vec<Raw>> {
    link.send(&calls.iter().collect::<Vec<_>>())?;
    link.replies(calls.len())
}

fn with_accounts(head: &[&str], accounts: Range<usize>) -> Call {
    let mut call = words(head);
    call.extend(accounts.map(|index| format!("account{index}").into_bytes()));
    call
}

fn words(words: &[&str]) -> Call {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}
