//! Who the process is: `run-as-user` has one that root has started become somebody else.

use std::fs;
use std::io;

use kvasir_reactor::limits;

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// Who a user is, as the kernel has it.
#[derive(Debug, PartialEq, Eq)]
struct User {
    id: u32,
    group: u32,
    /// All groups it is in.
    groups: Vec<u32>,
}

/// Becomes the user of this name or number for good, if the process is root's. There must be no
/// thread yet but this one.
pub fn become_user(name: &[u8]) -> Result<(), String> {
    if name.is_empty() || !limits::is_root() {
        return Ok(());
    }
    let name = String::from_utf8_lossy(name);
    let failed = |error: io::Error| format!("can't run as user={name} error={error}");
    let users = fs::read_to_string(USERS).map_err(failed)?;
    // Without such a file nobody is in any group but its own.
    let groups = fs::read_to_string(GROUPS).unwrap_or_default();
    let user = find(&users, &groups, &name);
    let User { id, group, groups } =
        user.ok_or_else(|| failed(io::Error::other("there is no such user")))?;
    limits::give_up_root(id, group, &groups).map_err(failed)
}

fn find(users: &str, groups: &str, wanted: &str) -> Option<User> {
    // A name, a password, an id, the id of a group; what follows is of no interest.
    let user = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        let (id, group): (u32, u32) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        Some((name, id, group))
    };
    let all = || users.lines().filter_map(user);
    let by_name = all().find(|(name, ..)| name == wanted);
    let number = wanted.parse().ok();
    let (name, id, group) = by_name.or_else(|| all().find(|(_, id, _)| Some(*id) == number))?;
    // A name, a password, an id, members.
    let member_of = |line: &str| {
        let mut fields = line.split(':');
        let id: u32 = fields.nth(2)?.parse().ok()?;
        fields.next()?.split(',').any(|member| member == name).then_some(id)
    };
    let mut groups: Vec<u32> = groups.lines().filter_map(member_of).collect();
    groups.push(group);
    Some(User { id, group, groups })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_with_their_groups() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\n\nbroken:x\nme:x:1000:100::/:/bin/sh\n7:x:8:9::\n";
        let groups = "root:x:0:\nmine:x:5:you,me\nother:x:6:mea\nlast:x:7:me\n";
        let me = || Some(User { id: 1000, group: 100, groups: vec![5, 7, 100] });
        assert_eq!(find(users, groups, "me"), me());
        assert_eq!(find(users, groups, "1000"), me());
        assert_eq!(find(users, groups, "7"), Some(User { id: 8, group: 9, groups: vec![9] }));
        for nobody in ["", "broken", "you", "99"] {
            assert_eq!(find(users, groups, nobody), None, "{nobody}");
        }
    }
}
