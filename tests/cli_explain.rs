//! `explain`, `completions` and `man`: made of the same definitions as what they speak of, and needing no store.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use std::fs;
use std::process::Command;

use cli_common::{Home, USAGE, flip, messages};
use sessionlog::backend::{DamageClass, ErrorKind};

#[test]
fn every_class_has_a_cause_a_next_step_and_a_longer_text() {
    let home = Home::new();
    let rows = home.run(["explain", "--json"]).ok().json();
    let names: Vec<&str> = rows.iter().map(|row| row["class"].as_str().unwrap()).collect();
    let kinds = ErrorKind::ALL.iter().map(|kind| kind.name());
    for class in kinds.chain(DamageClass::ALL.iter().map(|class| class.name())) {
        assert!(names.contains(&class), "{class}");
    }
    assert_eq!(home.run(["explain"]).ok().out.lines().count(), rows.len());
    for row in &rows {
        let one = home.run(["explain", row["class"].as_str().unwrap()]).ok().out;
        let line = format!(
            "{}: {}\nnext: {}\n\n",
            row["class"].as_str().unwrap(),
            row["cause"].as_str().unwrap(),
            row["next"].as_str().unwrap()
        );
        assert!(one.starts_with(&line) && one.lines().all(|line| line.chars().count() < 160), "{one}");
    }
    home.run(["explain", "nope"]).with(USAGE).says(&["no class nope", "sessionlog explain"]);
    assert!(!home.store().exists());
}

#[test]
fn what_an_error_names_can_be_explained() {
    let home = Home::new();
    home.import("s", messages("s", 3));
    flip(&home.session("s").join("header"), 30);
    let ran = home.run(["messages", "s"]).with(1);
    let class = ran.err.split("sessionlog explain ").nth(1).unwrap().split('`').next().unwrap();
    assert_eq!(class, "bad-header");
    home.run(["explain", class]).ok();
    let row = &home.run(["verify", "--json"]).with(1).json()[0];
    home.run(["explain", row["class"].as_str().unwrap()]).ok();
}

#[test]
fn completions_are_scripts_that_name_every_verb() {
    let home = Home::new();
    let verbs = home.verbs();
    assert!(verbs.len() > 10 && verbs.iter().any(|verb| verb == "salvage"), "{verbs:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = home.run(["completions", shell]).ok().out;
        verbs.iter().for_each(|verb| assert!(script.contains(verb), "{shell}: {verb}"));
        let document = home.run(["completions", shell, "--json"]).ok().document();
        assert!(document["shell"] == shell && document["script"].as_str().unwrap().trim_end() == script.trim_end());
    }
    let script = home.write("completion.bash", home.run(["completions", "bash"]).ok().out);
    let checked = Command::new("bash").arg("-n").arg(home.path(&script)).status();
    assert!(checked.is_ok_and(|status| status.success()));
    home.run(["completions", "tcsh"]).with(USAGE);
}

#[test]
fn each_verb_has_a_manual_page_with_its_options() {
    let home = Home::new();
    let main = home.run(["man"]).ok().out;
    assert!(
        main.contains(".TH sessionlog 1") && main.contains("sessionlog\\-salvage(1)") && main.contains(".SH FILES")
    );
    let page = home.run(["man", "prune"]).ok().out;
    for part in [".TH sessionlog-prune 1", "\\-\\-max\\-bytes", "\\-\\-store", ".SH \"EXIT STATUS\""] {
        assert!(page.contains(part), "{part} in {page}");
    }
    home.run(["man", "nope"]).with(USAGE).says(&["no verb \"nope\"", "prune"]);
    let written = home.run(["man", "--output", "pages", "--json"]).ok().document();
    let files = written["files"].as_array().unwrap();
    assert_eq!(files.len(), fs::read_dir(home.path("pages")).unwrap().count());
    assert!(fs::read_to_string(home.path("pages/sessionlog-prune.1")).unwrap().trim_end() == page.trim_end());
    assert_eq!(
        home.run(["man", "prune", "--json"]).ok().document()["page"].as_str().unwrap().trim_end(),
        page.trim_end()
    );
    home.write("file", "");
    home.run(["man", "--output", "file"]).with(1).says(&["cannot write", "--output"]);
}
