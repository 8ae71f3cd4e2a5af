//! What is changed in Lua's sources while they are built: the files of `patches/`, in order.
//!
//! A patch begins with its reason. `--- FILE` names a file, and each `@@` begins a place in it:
//! lines with ` ` or `-` before them are what stands there, lines with ` ` or `+` what stands there
//! then. They name a place by what it says, not by a number, so what stands there must stand there
//! once; else the build ends, since a change that is silently left out would be a hole.

use std::fs;
use std::path::Path;

/// One place of one file.
#[derive(Debug, PartialEq)]
pub struct Place {
    /// Of the patch, for whoever it fails.
    patch: String,
    file: String,
    old: String,
    new: String,
}

/// All places of the patches in a folder, in order. Panics where one can't be read.
pub fn read_all(folder: &Path) -> Vec<Place> {
    let entries = fs::read_dir(folder).expect("the folder of the patches");
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        parse(&name, &fs::read_to_string(path).expect("a patch is text"))
    };
    paths.iter().flat_map(read).collect()
}

fn parse(patch: &str, text: &str) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let mut file = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("--- ") {
            file = Some(name.to_owned());
        } else if line == "@@" {
            let file = file.clone().expect("a place is in a file");
            let (old, new) = (String::new(), String::new());
            places.push(Place { patch: patch.to_owned(), file, old, new });
        } else if file.is_some() {
            let place = places.last_mut().expect("a line belongs to a place");
            let (mark, rest) = line.split_at_checked(1).expect("a line begins with its mark");
            let rest = format!("{rest}\n");
            match mark {
                " " => {
                    place.old.push_str(&rest);
                    place.new.push_str(&rest);
                }
                "-" => place.old.push_str(&rest),
                "+" => place.new.push_str(&rest),
                _ => panic!("{patch}: no mark of a patch: {line}"),
            }
        }
    }
    places
}

/// The text of a file with all changes of it made. Panics where it is not as they expect.
pub fn apply(places: &[Place], file: &str, text: &str) -> String {
    // Whole lines only: what stands there begins behind the end of a line.
    let mut text = format!("\n{text}");
    for Place { patch, old, new, .. } in places.iter().filter(|place| place.file == file) {
        let (old, new) = (format!("\n{old}"), format!("\n{new}"));
        let found = text.matches(&old).count();
        assert_eq!(found, 1, "{patch}: {file} is not as expected, places that say:{old}");
        text = text.replace(&old, &new);
    }
    text.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "Why.\n\n--- a.c\n@@\n one\n-two\n+2\n@@\n+zero\n one\n";

    #[test]
    fn places_are_changed_one_after_the_other() {
        let places = parse("p", PATCH);
        assert_eq!(apply(&places, "a.c", "one\ntwo\nthree\n"), "zero\none\n2\nthree\n");
        assert_eq!(apply(&places, "b.c", "else\n"), "else\n");
    }

    #[test]
    #[should_panic(expected = "p: a.c is not as expected")]
    fn another_source_ends_the_build() {
        apply(&parse("p", PATCH), "a.c", "one\nto\n");
    }

    #[test]
    #[should_panic(expected = "p: a.c is not as expected")]
    fn a_place_that_is_there_twice_ends_the_build() {
        apply(&parse("p", PATCH), "a.c", "one\ntwo\none\ntwo\n");
    }

    #[test]
    fn each_patch_says_why_and_names_files_that_are_there() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("patches");
        for place in read_all(&folder) {
            let text = fs::read_to_string(folder.join(&place.patch)).unwrap();
            assert!(!text.starts_with("---"), "{}", place.patch);
            let source = Path::new(env!("LUA_SOURCES")).join(&place.file);
            assert!(source.is_file(), "{}: no file {}", place.patch, place.file);
        }
    }
}
