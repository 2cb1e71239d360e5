//! The command in a terminal: colour, width, pager and progress, and none of them where no person looks.
#![cfg(all(feature = "cli", target_os = "linux"))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;

use cli_common::{Home, log, messages, recording, said};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// What is a terminal for the command; the rest is a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Terminal {
    Output,
    Errors,
}

/// How a run in a terminal ended: its status, what the terminal showed, and what the pipe got.
#[derive(Debug)]
struct Shown {
    status: i32,
    screen: String,
    pipe: String,
}

impl Shown {
    /// The lines on the screen, without colours.
    fn lines(&self) -> Vec<String> {
        let mut plain = String::new();
        let mut rest = self.screen.as_str();
        while let Some((before, after)) = rest.split_once("\u{1b}[") {
            plain += before;
            rest = after.split_once('m').map_or("", |(_, rest)| rest);
        }
        plain += rest;
        plain.lines().map(|line| line.trim_end_matches('\r').to_owned()).collect()
    }
}

fn run(mut command: Command, terminal: Terminal, columns: u16) -> Shown {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    tcsetwinsize(&master, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let side = || OpenOptions::new().read(true).write(true).open(&name).unwrap();
    match terminal {
        Terminal::Output => command.stdin(side()).stdout(side()).stderr(Stdio::piped()),
        Terminal::Errors => command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(side()),
    };
    command.env("TERM", "xterm").env_remove("LESS");
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut screen = File::from(master);
    let reader = thread::spawn(move || {
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
        // The last one to close its side makes reading fail.
        while let Ok(count @ 1..) = screen.read(&mut buffer) {
            bytes.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let mut pipe = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut pipe).unwrap();
    }
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut pipe).unwrap();
    }
    let status = child.wait().unwrap().code().unwrap();
    Shown { status, screen: reader.join().unwrap(), pipe }
}

fn show(home: &Home, variables: &[(&str, &str)], columns: u16) -> Shown {
    let mut command = home.command(["show", "long"]);
    command.env("PAGER", "cat").env_remove("NO_COLOR");
    command.envs(variables.iter().copied());
    let shown = run(command, Terminal::Output, columns);
    assert_eq!((shown.status, shown.pipe.as_str()), (0, ""), "{shown:?}");
    shown
}

fn store() -> Home {
    let home = Home::new();
    home.import("long", log("long", (0..40).map(|seq| said(seq, &"some words to wrap ".repeat(30)))));
    home
}

#[test]
fn colour_is_for_terminals_and_not_with_no_color() {
    let home = store();
    assert!(show(&home, &[], 80).screen.contains("\u{1b}["));
    assert!(show(&home, &[("NO_COLOR", "")], 80).screen.contains("\u{1b}["), "an empty one says nothing");
    assert!(!show(&home, &[("NO_COLOR", "1")], 80).screen.contains('\u{1b}'));
    assert!(!home.run(["show", "long"]).ok().out.contains('\u{1b}'));
}

#[test]
fn text_is_as_wide_as_the_terminal_within_reason() {
    let home = store();
    // Of what was said, and of facts and headings except for words that are longer: those are there to be copied.
    let widest = |shown: &Shown| {
        let lines = shown.lines();
        lines.iter().filter(|line| line.contains("words")).map(|line| line.chars().count()).max().unwrap()
    };
    for (columns, least, most) in [(30, 20, 30), (80, 60, 80), (300, 100, 120)] {
        let width = widest(&show(&home, &[], columns));
        assert!((least..=most).contains(&width), "{width} in {columns} columns");
    }
    let narrow = show(&home, &[], 30).lines();
    let whole = |line: &String| line.chars().count() <= 30 || !line.trim().contains(' ');
    assert!(narrow.iter().all(whole), "{narrow:?}");
    // One that does not know its width, and one too narrow for anything.
    for columns in [0, 5] {
        assert!(widest(&show(&home, &[], columns)) <= 120);
    }
    let mut command = home.command(["show", "long", "--width", "50"]);
    command.env("PAGER", "cat");
    assert!(widest(&run(command, Terminal::Output, 200)) <= 50);
}

#[test]
fn a_person_gets_the_pager_and_what_it_lacks() {
    let home = store();
    let paged = show(&home, &[("PAGER", "sed s/^/PAGED:/")], 80);
    assert!(paged.lines().iter().all(|line| line.starts_with("PAGED:")), "{}", paged.screen);
    // A pager that is not there, and one that is left early.
    assert!(show(&home, &[("PAGER", "no-such-pager-here -x")], 80).lines().len() > 40);
    let left = show(&home, &[("PAGER", "head -n 3")], 80);
    assert_eq!(left.lines().len(), 3, "{}", left.screen);
    // Only the transcript is paged.
    let mut command = home.command(["ls"]);
    command.env("PAGER", "sed s/^/PAGED:/");
    assert!(!run(command, Terminal::Output, 80).screen.contains("PAGED:"));
    assert!(
        !home.command(["show", "long"]).env("PAGER", "sed s/^/PAGED:/").output().unwrap().stdout.starts_with(b"PAGED")
    );
}

#[test]
fn json_is_the_same_in_a_terminal() {
    let home = Home::new();
    home.import("good", recording(1, 300));
    for arguments in
        [&["ls", "--json"][..], &["show", "good", "--json"], &["verify", "--json"], &["explain", "gap", "--json"]]
    {
        let shown = run(home.command(arguments), Terminal::Output, 40);
        assert_eq!(shown.lines().join("\n") + "\n", home.run(arguments).ok().out, "{arguments:?}");
        assert!(!shown.screen.contains('\u{1b}'), "{arguments:?}");
    }
}

#[test]
fn a_long_import_shows_its_progress_to_a_person_and_to_nobody_else() {
    let home = Home::new();
    let text = "word ".repeat(200_000);
    let file = home.write("large.jsonl", log("large", (0..18).map(|seq| said(seq, &text))));
    let shown = run(home.command(["import", &file, "--json"]), Terminal::Errors, 100);
    assert_eq!(shown.status, 0, "{shown:?}");
    let line: serde_json::Value = serde_json::from_str(shown.pipe.trim_end()).unwrap();
    assert_eq!((line["status"].as_str(), line["events"].as_u64()), (Some("imported"), Some(18)));
    for part in ["MiB", "/s", " left"] {
        assert!(shown.screen.contains(part), "{part} in {:?}", shown.screen);
    }
    home.run(["rm", "--now", "large"]).ok();
    home.run(["import", &file]).ok();
    // A small one is over before a bar could be read.
    let small = home.write("small.jsonl", messages("small", 3));
    assert_eq!(run(home.command(["import", &small]), Terminal::Errors, 100).screen, "");
}

#[test]
fn complaints_on_a_terminal_are_plain_lines() {
    let home = store();
    let shown = run(home.command(["show", "nope\u{1b}[2J"]), Terminal::Errors, 80);
    assert_eq!(shown.status, cli_common::MISSING);
    assert!(shown.screen.contains("no session") && !shown.screen.contains('\u{1b}'), "{shown:?}");
}
