//! Becoming a user by name and password.

use crate::calls::admit::{Scene, note_wrong_password};
use crate::state::connection::Connection;

/// The password is another one, or there is no such user.
pub struct WrongPassword;

/// Makes the connection this user's. `command`: as it was written, for ACL LOG.
pub fn log_in(
    scene: Scene<'_>,
    connection: &mut Connection,
    command: &[u8],
    name: &[u8],
    password: &[u8],
) -> Result<(), WrongPassword> {
    let shared = scene.shared;
    let Some(user) = shared.acl.authenticate(name, password) else {
        note_wrong_password(scene, &connection.client, command, name);
        return Err(WrongPassword);
    };
    connection.client.rename(|names| names.user = user.name.to_vec());
    connection.access.log_in(user, &shared.acl, &shared.table);
    Ok(())
}
