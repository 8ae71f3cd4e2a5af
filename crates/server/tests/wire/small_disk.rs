//! A small file system of its own, on a loop device, that can be full, or hang.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::saving::directory;

const SIZE: u64 = 32 << 20;
/// So much is left while it is full.
const LEFT: u64 = 300 << 10;

pub struct SmallDisk {
    directory: TempDir,
}

impl SmallDisk {
    /// None: nobody may mount one here.
    pub fn new() -> Option<SmallDisk> {
        let disk = SmallDisk { directory: directory() };
        let image = disk.directory.path().join("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(SIZE)).unwrap();
        std::fs::create_dir(disk.path()).unwrap();
        let is_there = run(Command::new("mkfs.ext4").arg("-q").arg(&image))
            && run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(disk.path()));
        if !is_there {
            eprintln!("no file system can be mounted here: no disk is full");
            return None;
        }
        Some(disk)
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("disk")
    }

    /// Leaves little room.
    pub fn fill(&self) {
        let stat = Command::new("stat").args(["-f", "-c", "%a %S"]).arg(self.path()).output();
        let text = String::from_utf8(stat.expect("coreutils are here").stdout).unwrap();
        let (blocks, size) = text.trim().split_once(' ').unwrap();
        let free = blocks.parse::<u64>().unwrap() * size.parse::<u64>().unwrap();
        std::fs::write(self.filler(), vec![1; (free - LEFT) as usize]).unwrap();
    }

    pub fn make_room(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    /// Has every write to it hang. False: that can't be had here.
    pub fn freeze(&self) -> bool {
        let is_frozen = run(Command::new("fsfreeze").arg("-f").arg(self.path()));
        if !is_frozen {
            eprintln!("no file system can be frozen here: no disk hangs");
        }
        is_frozen
    }

    pub fn thaw(&self) {
        run(Command::new("fsfreeze").arg("-u").arg(self.path()));
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        self.thaw();
        run(Command::new("umount").arg("--lazy").arg(self.path()));
    }
}

fn run(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
