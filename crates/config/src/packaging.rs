//! The option table as packages need it: a file for /etc, a manual page, completions of shells.
//!
//! What is printed here is committed in /packaging; a test in `print` says when it is stale.

use crate::arguments::USAGE;
use crate::kind::Kind;
use crate::print;
use crate::row::{Change, Group, Row};
use crate::table;

/// What a service has otherwise than a server that somebody starts by hand.
const OF_A_SERVICE: &[(&str, &str)] = &[
    ("bind", "127.0.0.1 -::1"),
    ("dir", "/var/lib/kvasir"),
    ("logfile", "/var/log/kvasir/kvasir-server.log"),
    ("pidfile", "/run/kvasir/kvasir-server.pid"),
    ("supervised", "auto"),
];

/// Words of the command line that are no options.
const OTHER_WORDS: &[&str] = &[
    "--help",
    "--version",
    "--print-config",
    "check-rdb",
    "check-aof",
    "export-rdb",
    "report",
    "cluster",
];

/// Every printed file, by its path from the repository's root.
pub fn files() -> [(&'static str, String); 5] {
    [
        ("packaging/kvasir.conf", etc_file()),
        ("packaging/kvasir-server.1", manual()),
        ("packaging/completions/kvasir-server.bash", bash()),
        ("packaging/completions/_kvasir-server", zsh()),
        ("packaging/completions/kvasir-server.fish", fish()),
    ]
}

fn etc_file() -> String {
    let mut lines: Vec<String> = print::sample_file().lines().map(String::from).collect();
    for (name, value) in OF_A_SERVICE {
        let start = format!("{name} ");
        let line = lines.iter_mut().find(|line| line.starts_with(&start));
        *line.expect("an option of the sample file") = format!("{name} {value}");
    }
    let kept = "# Configuration of Kvasir, in the syntax of redis.conf, for a service. Every option \
                stands\n# here; by default but for ";
    let (last, others) = OF_A_SERVICE.split_last().expect("there are some");
    let others: Vec<&str> = others.iter().map(|(name, _)| *name).collect();
    let head = format!("{kept}{} and {}.", others.join(", "), last.0);
    let rest = lines.iter().skip_while(|line| line.as_str() != "#");
    rest.fold(head, |text, line| text + "\n" + line) + "\n"
}

fn manual() -> String {
    let mut out = String::from(
        ".\\\" Printed from the option table: cargo xtask printed\n\
         .TH KVASIR-SERVER 1\n\
         .SH NAME\nkvasir\\-server \\- in\\-memory data store that Redis clients talk to\n\
         .SH SYNOPSIS\n.nf\n",
    );
    let (synopsis, examples) = USAGE.split_once("\nExamples:\n").expect("the usage has both");
    let synopsis = synopsis.trim_start_matches("Usage: ");
    out += &roff(&synopsis.replace("\n       ", "\n"));
    out += ".fi\n.SH DESCRIPTION\n";
    out += "Options are given in a file in the syntax of redis.conf, or on the command line with\n\
            .B \\-\\-\nin front of the name; what comes later wins. SIGTERM and SIGINT save the \
            data \
            as\n.B shutdown\\-on\\-sigterm\nsays and end the server.\n";
    out += ".SH EXAMPLES\n.nf\n";
    out += &roff(&examples.replace("       ", ""));
    out += ".fi\n.SH OPTIONS\n";
    for &group in Group::ALL {
        out += &format!(".SS {}\n", group.title());
        for row in shown().filter(|row| row.group == group) {
            let default = if row.default.is_empty() { "\"\"" } else { row.default };
            out += &format!(".TP\n\\fB{}\\fR {}\n", roff_word(row.name), roff_word(default));
            out += &roff(row.doc);
            if row.change != Change::AtStart {
                out += "\nMay be changed by CONFIG SET.";
            }
            out += "\n";
        }
    }
    out + ".SH EXIT STATUS\n0 after an orderly end; 65 if the data cannot be loaded, which is left \
           as it is; 1 for\nany other reason not to start.\n\
           .SH FILES\n\
           .TP\n/etc/kvasir/kvasir.conf\nThe configuration of the service.\n\
           .TP\n/var/lib/kvasir\nIts data: dump.rdb, appendonlydir.\n\
           .SH SEE ALSO\n.BR redis\\-cli (1),\n.BR systemctl (1)\n"
}

/// Text as roff reads it; a line that begins like a request is none.
fn roff(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = roff_word(line);
        if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
    });
    lines.collect::<Vec<_>>().join("\n") + if text.ends_with('\n') { "\n" } else { "" }
}

fn roff_word(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// Those that people set: not what only tests of others ask for.
fn shown() -> impl Iterator<Item = &'static Row> {
    table::all().filter(|row| !row.is_hidden)
}

/// What an option may be, where that can be listed.
fn words(kind: Kind) -> Option<Vec<&'static str>> {
    match kind {
        Kind::Bool => Some(vec!["yes", "no"]),
        Kind::Choice(words) => Some(words.to_vec()),
        _ => None,
    }
}

fn bash() -> String {
    let mut out = String::from(
        "# Completion of kvasir-server for bash; printed from the option table.\n\
         _kvasir_server() {\n    local word=${COMP_WORDS[COMP_CWORD]} words\n    \
         case ${COMP_WORDS[COMP_CWORD-1]} in\n",
    );
    for row in shown() {
        if let Some(words) = words(row.kind) {
            out += &format!("    --{}) words=\"{}\" ;;\n", row.name, words.join(" "));
        }
    }
    let names = OTHER_WORDS.iter().map(|word| (*word).to_owned());
    let names = names.chain(shown().map(|row| format!("--{}", row.name)));
    out += "    *)\n        if [[ $word != -* ]]; then\n            \
            mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n            return\n        fi\n\
            \x20       words=\"\n";
    for name in names {
        out += &format!("            {name}\n");
    }
    out + "        \" ;;\n    esac\n\
           \x20   mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n}\n\
           complete -o filenames -F _kvasir_server kvasir-server\n"
}

fn zsh() -> String {
    let mut out = String::from(
        "#compdef kvasir-server\n\
         # Completion of kvasir-server for zsh; printed from the option table.\n_arguments \\\n",
    );
    for word in OTHER_WORDS.iter().filter(|word| word.starts_with("--")) {
        out += &format!("    '{word}' \\\n");
    }
    for row in shown() {
        let values =
            words(row.kind).map_or(String::new(), |words| format!("({})", words.join(" ")));
        out += &format!("    '--{}[{}]:value:{values}' \\\n", row.name, sentence(row));
    }
    out + "    '1:file:_files'\n"
}

fn fish() -> String {
    let mut out =
        String::from("# Completion of kvasir-server for fish; printed from the option table.\n");
    for word in OTHER_WORDS {
        match word.strip_prefix("--") {
            Some(long) => out += &format!("complete -c kvasir-server -l {long}\n"),
            None => {
                out += "complete -c kvasir-server -n __fish_is_first_token ";
                out += &format!("-a {word}\n");
            }
        }
    }
    for row in shown() {
        let values =
            words(row.kind).map_or(String::new(), |words| format!(" -f -a '{}'", words.join(" ")));
        let sentence = sentence(row);
        out += &format!("complete -c kvasir-server -l {} -r{values} -d '{sentence}'\n", row.name);
    }
    out
}

/// The beginning of what is said of an option, without what shells would take for theirs.
fn sentence(row: &Row) -> String {
    let text = row.doc.replace('\n', " ");
    let end = text.find(". ").unwrap_or(text.len());
    let plain = |c: &char| !matches!(c, '\'' | '`' | '[' | ']' | '\\' | '$');
    let plain: String = text[..end].trim_end_matches('.').chars().filter(plain).collect();
    plain.replace(':', ",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Sources;
    use crate::load::load;

    #[test]
    fn the_file_for_etc_loads() {
        // The directory is there once the package is installed.
        let text = etc_file().replace("dir /var/lib/kvasir\n", "dir /\n");
        let loaded = load(&Sources { options: text.into_bytes(), ..Sources::default() }).unwrap();
        assert_eq!(loaded.ignored, []);
        assert_eq!(loaded.config.bind, ["127.0.0.1", "-::1"]);
        assert!(loaded.config.pidfile.starts_with("/run/kvasir"));
    }

    #[test]
    fn roff_takes_text_for_text() {
        assert_eq!(roff("a-b\\c\n.d\n'e"), "a\\-b\\ec\n\\&.d\n\\&'e");
    }
}
