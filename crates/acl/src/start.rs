//! Users and names of commands at the start: `rename-command`, `user`, `aclfile`.

use std::path::Path;

use kvasir_config::load::{Directive, Loaded};
use kvasir_config::{Config, PubsubDefault};

use crate::rule::{has_spaces, join_selectors};
use crate::user::{Grammar, User};
use crate::{Acl, Refused, file};
use kvasir_table::Table;

/// The command table and the users that a configuration asks for.
pub struct Prepared {
    pub table: Table,
    pub acl: Acl,
}

/// Makes them, or says why the server cannot start.
pub fn prepare(mut table: Table, loaded: &Loaded) -> Result<Prepared, String> {
    for directive in &loaded.renames {
        let [from, to] = &directive.words[..] else { unreachable!("the loader counted") };
        table.rename(from, to).map_err(|error| directive.wrong(error.text()).to_string())?;
    }
    let config = &loaded.config;
    let grammar = grammar(&table, config);
    let acl = Acl::new(grammar);
    acl.set_default_password(&config.requirepass);
    let path = &config.aclfile;
    if !path.as_os_str().is_empty() {
        if let Some(directive) = loaded.users.first() {
            let reason = format!(
                "users are declared here and in the ACL file {} at the same time: keep them in one \
                 of the two",
                path.display()
            );
            return Err(directive.wrong(&reason).to_string());
        }
        load_file(&acl, path, grammar)
            .map_err(|error| format!("aborting the start because of ACL errors: {error}"))?;
    }
    declare(&acl, &loaded.users, grammar)?;
    if let Some(directive) = &loaded.metrics_user
        && !config.metrics.user.is_empty()
        && acl.find(&config.metrics.user).is_none()
    {
        let reason = "there is no user of this name, so nobody could see the metrics: declare it \
                      by a 'user' line or in the aclfile";
        return Err(directive.wrong(reason).to_string());
    }
    Ok(Prepared { table, acl })
}

/// How rules are read under a configuration.
pub fn grammar<'t>(table: &'t Table, config: &Config) -> Grammar<'t> {
    Grammar { table, with_all_channels: config.acl_pubsub_default == PubsubDefault::AllChannels }
}

/// Replaces all users by those of the file, or changes nothing; the error names every wrong line.
/// Returns the users before.
pub fn load_file(
    acl: &Acl,
    path: &Path,
    grammar: Grammar<'_>,
) -> Result<Vec<std::sync::Arc<User>>, String> {
    let text = std::fs::read(path).map_err(|error| {
        format!("Error loading ACLs, opening file '{}': {}", path.display(), describe(&error))
    })?;
    let users = file::parse(&text, path, grammar, || acl.new_id()).map_err(|errors| {
        format!(
            "{}WARNING: ACL errors detected, no change to the previously active ACL rules was \
             performed",
            errors.concat()
        )
    })?;
    Ok(acl.replace(users, grammar))
}

/// As C describes it, without the number that Rust adds.
fn describe(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// The users of the configuration's own `user` directives.
pub fn declare<'d>(
    acl: &Acl,
    directives: impl IntoIterator<Item = &'d Directive>,
    grammar: Grammar<'_>,
) -> Result<(), String> {
    let mut names: Vec<&[u8]> = Vec::new();
    for directive in directives {
        let [name, words @ ..] = &directive.words[..] else { unreachable!("the loader counted") };
        let wrong = |reason: String| {
            let name = String::from_utf8_lossy(name);
            directive.wrong(&format!("Error in user declaration '{name}': {reason}")).to_string()
        };
        if has_spaces(name) {
            return Err(wrong("Spaces not allowed in ACL usernames".into()));
        }
        if names.contains(&&name[..]) {
            let text = "Duplicate user found. A user can only be defined once in config files";
            return Err(wrong(text.into()));
        }
        names.push(name);
        let rules = join_selectors(words.iter().map(Vec::as_slice))
            .map_err(|_| wrong("Unmatched parenthesis in selector definition".into()))?;
        // What the default user may is said anew.
        let rules: Vec<_> = std::iter::once(b"reset".to_vec()).chain(rules).collect();
        acl.set(name, &rules, grammar).map_err(|Refused { rule, error }| {
            wrong(format!("'{}': {error}", String::from_utf8_lossy(&rule)))
        })?;
    }
    Ok(())
}
