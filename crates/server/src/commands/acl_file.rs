//! ACL LOAD and SAVE: the users' file.

use kvasir_acl::file;
use kvasir_acl::start::{grammar, load_file};
use kvasir_keyspace::error::Error;
use kvasir_keyspace::spec::Spec;

use crate::commands::acl::{BLANK, EVERYWHERE, close_connections_of};
use crate::log::{notice, warning};
use crate::run::server::{ServerCommand, ServerCx, ServerRun};
use crate::run::strangers::look_after;

const NO_FILE: Error = Error::fixed(
    "ERR This instance is not configured to use an ACL file. You may want to specify users via the \
     ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a configuration file \
     set) in order to store users in the configuration.",
);

pub static ACL_LOAD: ServerCommand = ServerCommand {
    spec: Spec {
        name: "load",
        summary: "Replaces the users by those of the ACL file.",
        complexity: "O(N) in the number of users",
        arity: 2,
        ..BLANK
    },
    run: ServerRun::Plain(load),
};

/// Connections stay whose user is in the file too.
fn load(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let (shared, config) = (cx.shared, cx.shared.config());
    if config.aclfile.as_os_str().is_empty() {
        return Err(NO_FILE);
    }
    let before = load_file(&shared.acl, &config.aclfile, grammar(&shared.table, &config))
        .map_err(|error| Error::new(format!("ERR {error}")))?;
    notice!("users loaded path={} count={}", config.aclfile.display(), shared.acl.all().len());
    for user in before {
        match shared.acl.find(&user.name) {
            Some(after) => look_after(shared, &after),
            None => close_connections_of(cx, &user.name),
        }
    }
    cx.reply().ok();
    Ok(())
}

pub static ACL_SAVE: ServerCommand = ServerCommand {
    spec: Spec {
        name: "save",
        summary: "Writes the users to the ACL file.",
        complexity: "O(N) in the number of users",
        arity: 2,
        tips: EVERYWHERE,
        ..BLANK
    },
    run: ServerRun::Plain(save),
};

fn save(cx: &mut ServerCx<'_>) -> Result<(), Error> {
    let config = cx.shared.config();
    if config.aclfile.as_os_str().is_empty() {
        return Err(NO_FILE);
    }
    if let Err(error) = file::save(&config.aclfile, &cx.shared.acl.file_text()) {
        warning!("can't save the users path={} error={error}", config.aclfile.display());
        return Err(Error::fixed(
            "ERR There was an error trying to save the ACLs. Please check the server logs for more \
             information",
        ));
    }
    cx.reply().ok();
    Ok(())
}
