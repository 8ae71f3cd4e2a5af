//! Users for the configuration file: what CONFIG REWRITE writes of them.
//!
//! A user may be declared once, so what an included file or the command line declares is not
//! written again: the next start would refuse that. If such a user was changed or deleted
//! meanwhile, there is nothing that could be written, and the rewrite is refused.

use std::path::Path;

use kvasir_acl::Acl;
use kvasir_acl::start::{declare, grammar};
use kvasir_config::Config;
use kvasir_config::load::{Directive, included_users};

use kvasir_resp::inline;

use crate::state::shared::Shared;

/// The lines of the users; none if they are kept in a file of their own. The error is for the user.
pub fn lines(shared: &Shared, config: &Config) -> Result<Vec<Vec<u8>>, String> {
    if !config.aclfile.as_os_str().is_empty() {
        return Ok(Vec::new());
    }
    let facts = &shared.facts;
    let included = included_users(Path::new(&facts.config_file), &facts.start_dir);
    // In one line.
    let included = included.map_err(|error| error.to_string().replace('\n', " "))?;
    let elsewhere: Vec<_> = included.iter().chain(&facts.users_of_arguments).collect();
    check_same(shared, config, &elsewhere)?;
    let is_elsewhere = |name: &[u8]| elsewhere.iter().any(|user| user.words[0] == name);
    let users = shared.acl.all().into_iter().filter(|user| !is_elsewhere(&user.name));
    Ok(users.map(|user| line(&user.describe())).collect())
}

/// Fails unless the users of these directives are as they were declared.
fn check_same(shared: &Shared, config: &Config, directives: &[&Directive]) -> Result<(), String> {
    let grammar = grammar(&shared.table, config);
    let declared = Acl::new(grammar);
    declare(&declared, directives.iter().copied(), grammar)
        .map_err(|error| error.replace('\n', " "))?;
    let describe = |acl: &Acl, name: &[u8]| acl.find(name).map(|user| user.describe());
    let has_changed = |directive: &&&Directive| {
        let name = &directive.words[0];
        describe(&shared.acl, name) != describe(&declared, name)
    };
    let Some(changed) = directives.iter().find(has_changed) else { return Ok(()) };
    let (name, place) = (changed.words[0].escape_ascii(), changed.place());
    Err(format!(
        "user '{name}' is no longer as {place} declares it, which this file can't undo: change it \
         there too"
    ))
}

/// A user's line, from which the same words are read.
fn line(described: &[u8]) -> Vec<u8> {
    let words = described.split(|byte| *byte == b' ').map(inline::quote);
    words.collect::<Vec<_>>().join(&b' ')
}
