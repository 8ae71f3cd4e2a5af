//! That the folders of `server` depend on each other downwards only.
//!
//! A dependency is a path in the code of a file, tests aside: `crate::`, `super::` or `self::`, in
//! a `use` or elsewhere. Methods are found by their types: an `impl` of a type that stands in
//! another folder counts as a dependency of that folder on this one, since its owner can call it
//! without naming a path. `ORDER` says which folder stands above which; `KNOWN` are the arrows
//! against it that are left, and one that is gone must leave the list.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use kvasir_harness::workspace::root;

use crate::source::Source;

/// The folders of `crates/server/src`, each above all that follow it.
const ORDER: &[&str] = &[
    "start",
    "commands",
    "bus",
    "handover",
    "following",
    "loading",
    "http",
    "metrics",
    "info",
    "run",
    "calls",
    "state",
    "analytics",
    "store",
    "cluster",
    "workers",
    "replicas",
    "scripts",
    "tracking",
    "clients",
    "net",
    "stats",
    "machine",
    "log",
];

/// Arrows that point up and are not yet broken: module, folder, reason.
const KNOWN: &[Known] = &[];

/// `from` depends on the folder `to`, though that stands above it.
struct Known {
    from: &'static str,
    to: &'static str,
    why: &'static str,
}

/// A module as its path from the crate's root; empty for the root itself.
type Module = Vec<String>;

/// The modules of one crate, and on which others each depends.
struct Modules {
    arrows: BTreeMap<Module, BTreeSet<Module>>,
    /// Of those, the arrows that an `impl` makes, back to where the type stands.
    impls: BTreeSet<(Module, Module)>,
}

/// Checks `server`, and says how large the largest circles are.
pub fn check() -> Result<Vec<String>> {
    for name in ["server", "keyspace"] {
        let modules = Modules::of(&sources(name)?);
        let circle = modules.largest_circle();
        println!("layers: {name}: {} modules, largest circle {circle}", modules.arrows.len());
    }
    Ok(findings(&Modules::of(&sources("server")?), ORDER, KNOWN))
}

/// The files of a crate's `src`, by their paths from there.
fn sources(name: &str) -> Result<BTreeMap<String, String>> {
    let top = root().join("crates").join(name).join("src");
    let mut found = BTreeMap::new();
    let mut folders = vec![top.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let name = path.strip_prefix(&top)?.display().to_string();
                found.insert(name, std::fs::read_to_string(&path)?);
            }
        }
    }
    Ok(found)
}

/// What breaks the order: every arrow up, and with it that of two folders which depend on each
/// other.
fn findings(modules: &Modules, order: &[&str], known: &[Known]) -> Vec<String> {
    let rank = |folder: &str| order.iter().position(|name| *name == folder);
    let arrows =
        || modules.arrows.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to)));
    let folders =
        |(from, to): &(&Module, &Module)| Some((from.first()?.clone(), to.first()?.clone()));
    let between: BTreeSet<(String, String)> =
        arrows().filter_map(|arrow| folders(&arrow)).collect();
    let own = modules.arrows.keys().filter_map(|module| module.first());
    let strange: BTreeSet<&String> = own.filter(|folder| rank(folder).is_none()).collect();
    let strange = strange.iter().map(|folder| format!("`{folder}` is no folder that ORDER names"));
    let mut found: Vec<String> = strange.collect();
    let mut is_seen = vec![false; known.len()];
    for (from, to) in arrows() {
        let Some((above, below)) = folders(&(from, to)) else { continue };
        if rank(&above) <= rank(&below) {
            continue;
        }
        let name = from.join("::");
        if let Some(at) = known.iter().position(|known| known.from == name && known.to == below) {
            is_seen[at] = true;
            continue;
        }
        let mut what = match modules.impls.contains(&(from.clone(), to.clone())) {
            true => format!("`{name}` has a type with methods of `{}`", to.join("::")),
            false => format!("`{name}` depends on `{}`", to.join("::")),
        };
        what += &format!(", but `{below}` stands above `{above}`");
        if between.contains(&(below, above)) {
            what += ", and depends on it";
        }
        found.push(what);
    }
    for (known, is_seen) in known.iter().zip(is_seen) {
        if !is_seen || known.why.is_empty() {
            let Known { from, to, .. } = known;
            found.push(format!("`{from}` to `{to}` is gone, or has no reason, but in KNOWN"));
        }
    }
    found.into_iter().map(|what| format!("layers: {what}")).collect()
}

impl Modules {
    fn of(files: &BTreeMap<String, String>) -> Modules {
        let is_module = |path: &&String| !path.ends_with("main.rs") && !path.ends_with("tests.rs");
        let names = files.keys().filter(is_module).map(|path| (module(path), path));
        let names: BTreeMap<Module, &String> = names.collect();
        let mut arrows: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        let mut impls = BTreeSet::new();
        for (from, path) in &names {
            let code = code_of(&files[*path]);
            let paths = paths(&code).into_iter().map(|path| absolute(&path, from));
            let mut types = BTreeMap::new();
            for mut path in paths {
                let last = path.last().cloned().unwrap_or_default();
                while !names.contains_key(&path) {
                    path.pop();
                }
                if path != *from {
                    types.insert(last, path.clone());
                    arrows.entry(from.clone()).or_default().insert(path);
                }
            }
            arrows.entry(from.clone()).or_default();
            for of in inherent_impls(&code) {
                if let Some(owner) = types.get(&of).filter(|owner| owner.first() != from.first()) {
                    arrows.entry(owner.clone()).or_default().insert(from.clone());
                    impls.insert((owner.clone(), from.clone()));
                }
            }
        }
        Modules { arrows, impls }
    }

    /// The most modules that reach each other by their arrows; those of `impl` aside, which may
    /// be called or not.
    fn largest_circle(&self) -> usize {
        let reached: BTreeMap<&Module, BTreeSet<&Module>> =
            self.arrows.keys().map(|from| (from, self.reached_from(from))).collect();
        let circle = |(from, to): (&&Module, &BTreeSet<&Module>)| {
            to.iter().filter(|other| reached[*other].contains(*from)).count()
        };
        reached.iter().map(circle).max().unwrap_or(0)
    }

    fn reached_from<'m>(&'m self, from: &'m Module) -> BTreeSet<&'m Module> {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(next) = left.pop() {
            let is_path = |to: &&Module| !self.impls.contains(&(next.clone(), (*to).clone()));
            left.extend(self.arrows[next].iter().filter(is_path).filter(|to| seen.insert(*to)));
        }
        seen
    }
}

/// `aof/mod.rs` is `aof`, `lib.rs` the root.
fn module(path: &str) -> Module {
    let path = Path::new(path).with_extension("");
    let mut parts: Module = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod" || last == "lib") {
        parts.pop();
    }
    parts
}

/// The code of a file without comments, strings and tests: an item for tests ends with the first
/// brace or semicolon at the end of a line that stands no further in than its attribute.
fn code_of(text: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let (source, mut code) = (Source::parse(text), String::new());
    let mut lines = source.code.iter();
    while let Some(line) = lines.next() {
        let is_for_tests =
            ["#[cfg(test)]", "#[cfg(all(test,"].iter().any(|s| line.trim_start().starts_with(s));
        if is_for_tests {
            let is_end =
                |end: &String| indent(end) == indent(line) && end.trim_end().ends_with(['}', ';']);
            lines.find(|line| is_end(line));
            continue;
        }
        code += line;
        code += "\n";
    }
    code
}

/// Every path of the crate that the code names; of a `use` of several, each.
fn paths(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for head in ["crate", "super", "self"] {
        for at in crate::source::words(code, head) {
            let follows = |end: &str| code[..at].ends_with(end);
            if !follows("::") && !follows("$") && code[at + head.len()..].starts_with("::") {
                expand(&mut Tokens { rest: &code[at..] }, &[], &mut found);
            }
        }
    }
    found
}

/// What is left of a text, word by word and sign by sign.
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn word(&mut self) -> Option<&'a str> {
        let text = self.rest.trim_start();
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        self.rest = if end == 0 { self.rest } else { &text[end..] };
        (end > 0).then(|| &text[..end])
    }

    fn takes(&mut self, sign: &str) -> bool {
        let after = self.rest.trim_start().strip_prefix(sign);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }
}

/// Reads a path, or a tree of them, that goes on from `before`.
fn expand(tokens: &mut Tokens<'_>, before: &[String], found: &mut Vec<Vec<String>>) {
    let mut path = before.to_vec();
    while let Some(word) = tokens.word() {
        path.push(word.to_owned());
        if !tokens.takes("::") {
            break;
        }
    }
    if !tokens.takes("{") {
        tokens.takes("*");
        if tokens.rest.trim_start().starts_with("as ") {
            tokens.word();
            tokens.word();
        }
        return found.push(path);
    }
    while !tokens.takes("}") && !tokens.rest.trim_start().is_empty() {
        let left = tokens.rest.len();
        expand(tokens, &path, found);
        tokens.takes(",");
        if tokens.rest.len() == left {
            break;
        }
    }
}

/// From the root, as `module` means it; a `self` at the end is the path before it.
fn absolute(path: &[String], module: &Module) -> Module {
    let mut whole = match path[0].as_str() {
        "crate" => Module::new(),
        _ => module.clone(),
    };
    for part in path {
        match part.as_str() {
            "crate" | "self" => {}
            "super" => drop(whole.pop()),
            _ => whole.push(part.clone()),
        }
    }
    whole
}

/// The types that get methods of their own here, by their last words.
fn inherent_impls(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for at in crate::source::words(code, "impl") {
        let Some(end) = code[at..].find('{') else { continue };
        let head = &code[at + "impl".len()..at + end];
        let starts_line = code[..at].trim_end_matches(' ').ends_with('\n') || at == 0;
        let is_of_trait = head.split_whitespace().any(|word| word == "for");
        if !starts_line || is_of_trait {
            continue;
        }
        let mut depth = 0;
        let outside = head.chars().filter(|c| {
            depth += i32::from(*c == '<');
            let is_outside = depth == 0;
            depth -= i32::from(*c == '>');
            is_outside
        });
        let outside: String = outside.collect();
        let of = outside.split_whitespace().next().unwrap_or_default();
        found.push(of.rsplit("::").next().unwrap_or_default().to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found in planted files of which `high` stands above `low`.
    fn found(files: &[(&str, &str)], known: &[Known]) -> Vec<String> {
        let own = |(path, text): &(&str, &str)| (path.to_string(), text.to_string());
        findings(&Modules::of(&files.iter().map(own).collect()), &["high", "low"], known)
    }

    #[test]
    fn an_arrow_up_is_found_however_it_is_written() {
        let down = ("high/mod.rs", "use crate::low::deep::Thing;\nfn f() {}\n");
        assert_eq!(found(&[down, ("low/mod.rs", ""), ("low/deep.rs", "")], &[]), [""; 0]);
        for up in [
            "use crate::high::f;\n",
            "use crate::{low, high::{self, f}};\n",
            "use super::super::high::f;\n",
            "fn g() { crate::high::f() }\n",
            "use crate::\n    high::f;\n",
        ] {
            let found = found(&[("high/mod.rs", ""), ("low/mod.rs", ""), ("low/deep.rs", up)], &[]);
            let what = "layers: `low::deep` depends on `high`, but `high` stands above `low`";
            assert_eq!(found, [what], "{up}");
        }
    }

    #[test]
    fn tests_comments_and_strings_are_no_arrows() {
        let text = "// crate::high\nfn f() -> &'static str { \"crate::high\" }\n\
                    #[cfg(test)]\nmod tests {\n    use crate::high::f;\n}\n";
        assert_eq!(found(&[("high/mod.rs", ""), ("low/mod.rs", text)], &[]), [""; 0]);
    }

    #[test]
    fn two_folders_that_depend_on_each_other_are_found() {
        let files = [
            ("high/mod.rs", "use crate::low::f;\n"),
            ("high/other.rs", ""),
            ("low/mod.rs", "use crate::high::other;\n"),
        ];
        let found = found(&files, &[]);
        assert!(found[0].ends_with("stands above `low`, and depends on it"), "{found:?}");
    }

    #[test]
    fn methods_given_to_a_type_of_another_folder_are_its_arrows() {
        let plain = "use crate::low::Thing;\nimpl Thing {\n    fn f() {}\n}\n";
        let files = [("high/mod.rs", plain), ("low/mod.rs", "pub struct Thing;\n")];
        assert_eq!(found(&files, &[]).len(), 1);
        let of_trait = "use crate::low::Thing;\nimpl From<Thing> for u8 {}\n";
        let files = [("high/mod.rs", of_trait), ("low/mod.rs", "pub struct Thing;\n")];
        assert_eq!(found(&files, &[]), [""; 0]);
    }

    #[test]
    fn a_known_arrow_is_let_through_as_long_as_it_is_there() {
        let known = [Known { from: "low", to: "high", why: "planted" }];
        let up = [("high/mod.rs", ""), ("low/mod.rs", "use crate::high::f;\n")];
        assert_eq!(found(&up, &known), [""; 0]);
        let gone = [("high/mod.rs", ""), ("low/mod.rs", "")];
        assert_eq!(found(&gone, &known).len(), 1);
    }

    #[test]
    fn a_file_outside_of_the_folders_is_found() {
        assert_eq!(found(&[("loose.rs", "")], &[]).len(), 1);
    }

    #[test]
    fn a_circle_is_counted_by_its_files() {
        let files = [
            ("low/a.rs", "use super::b::f;\n"),
            ("low/b.rs", "use super::c::f;\n"),
            ("low/c.rs", "use super::a::f;\n"),
            ("low/d.rs", "use super::a::f;\n"),
        ];
        let own = |(path, text): &(&str, &str)| (path.to_string(), text.to_string());
        assert_eq!(Modules::of(&files.iter().map(own).collect()).largest_circle(), 3);
    }
}
