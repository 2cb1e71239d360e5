//! The safety case names its tests; they exist.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The text of a test binary: its file, or all files of its directory.
fn source(binary: &str) -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    if let Ok(text) = fs::read_to_string(tests.join(format!("{binary}.rs"))) {
        return text;
    }
    let files =
        fs::read_dir(tests.join(binary)).unwrap_or_else(|error| panic!("no tests of the name {binary}: {error}"));
    files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn every_test_that_the_safety_case_names_exists() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("SAFETY.md")).unwrap();
    let named: BTreeSet<(&str, &str)> =
        text.split('`').skip(1).step_by(2).filter_map(|code| code.split_once("::")).collect();
    assert!(named.len() > 40, "{}", named.len());
    for (binary, test) in named {
        let source = source(binary);
        // A property is declared inside a macro, with arguments on the lines that follow.
        let declared = source.split(&format!("fn {test}(")).nth(1);
        assert!(declared.is_some(), "SAFETY.md names {binary}::{test}, which does not exist");
        let before = source.split(&format!("fn {test}(")).next().unwrap();
        let attributes = before.rsplit("\n\n").next().unwrap();
        assert!(attributes.contains("test]"), "{binary}::{test} is not a test");
    }
}
