//! Any lines are a configuration or are refused, and what is printed of one reads back as the same.
#![no_main]

use kvasir_acl::start::prepare;
use kvasir_server::commands;
use kvasir_config::arguments::Sources;
use kvasir_config::load::{Loaded, load};
use kvasir_config::print::directives;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // Other files are not part of the input, and some never end.
    if contains(input, b"include") || contains(input, b"aclfile") {
        return;
    }
    let Some(loaded) = parse(input) else { return };
    let mut printed = directives(&loaded.config);
    // The bug that the fuzzer must find.
    if cfg!(feature = "canary") && loaded.config.timeout > 0 {
        printed.extend_from_slice(b"timeout 0\n");
    }
    let again = parse(&printed).unwrap_or_else(|| panic!("{}", printed.escape_ascii()));
    assert_eq!(again.config, loaded.config, "{}", printed.escape_ascii());
    // Users and new names of commands are taken, or are refused with the line that has them.
    if let Err(reason) = prepare(commands::table(), &loaded) {
        assert!(reason.contains("at option"), "{reason}");
    }
});

fn parse(text: &[u8]) -> Option<Loaded> {
    load(&Sources { options: text.to_vec(), ..Sources::default() }).ok()
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}
