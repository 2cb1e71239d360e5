//! `view`: one page that shows the session and does nothing else, whatever the log holds.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use std::fs;

use cli_common::{FAILED, Home, MISSING, USAGE, cut, event, flip, log, messages, recording, said};

fn page(home: &Home, id: &str) -> String {
    home.run(["view", id, "-o", "page.html"]).ok();
    fs::read_to_string(home.path("page.html")).unwrap()
}

/// Every tag of a page, attributes included. The page must be one whose text holds no angle bracket.
fn tags(page: &str) -> Vec<&str> {
    let mut tags = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        let end = at + rest[at..].find('>').unwrap();
        assert!(!rest[at + 1..end].contains('<'), "{}", &rest[at..end]);
        tags.push(&rest[at..=end]);
        rest = &rest[end + 1..];
    }
    tags
}

/// Checks that a page has no tag and no attribute beside those of the writer's own making, and that all are closed in order.
fn assert_harmless(page: &str) {
    const NAMES: [&str; 34] = [
        "!DOCTYPE", "html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "dl", "dt", "dd", "main",
        "article", "b", "a", "div", "details", "summary", "pre", "code", "p", "footer", "ul", "ol", "li", "table",
        "tr", "th", "td", "nav", "span", "section",
    ];
    const ATTRIBUTES: [&str; 11] =
        ["lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "role", "value", "html"];
    let mut open: Vec<&str> = Vec::new();
    for tag in tags(page) {
        let inner = tag.trim_start_matches(['<', '/']).trim_end_matches('>');
        let (name, attributes) = inner.split_once(' ').unwrap_or((inner, ""));
        assert!(NAMES.contains(&name), "{tag}");
        for attribute in attributes.split("\" ").filter(|attribute| attribute.contains('=')) {
            let (key, value) = attribute.split_once("=\"").unwrap_or_else(|| panic!("{tag}"));
            assert!(ATTRIBUTES.contains(&key), "{tag}");
            assert!(key != "href" || value.starts_with('#'), "{tag}");
        }
        if tag.starts_with("</") {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !matches!(name, "!DOCTYPE" | "meta") {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    assert!(page.contains("http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';"));
    for word in ["url(", "@import", "http:", "https:", "//cdn"] {
        assert!(!page[..page.find("</style>").unwrap()].contains(word), "{word}");
    }
}

#[test]
fn a_recorded_session_is_shown_whole() {
    let home = Home::new();
    home.record("s", recording(4, 1_500));
    for seal in [false, true] {
        if seal {
            home.run(["seal", "s"]).ok();
        }
        let page = page(&home, "s");
        assert_harmless(&page);
        let messages = home.run(["messages", "s", "--json"]).ok().document();
        assert_eq!(page.matches("<article ").count(), messages["messages"].as_array().unwrap().len());
        for part in [
            "<h1>A recorded session (s)</h1>",
            "id=\"turn-1\"",
            "call of <b>bash</b>",
            "result of <b>bash</b>",
            "<h2>Tokens</h2>",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(page.contains("prefers-color-scheme:dark") && page.ends_with("</body>\n</html>\n"));
        let document = home.run(["view", "s", "-o", "other.html", "--json"]).ok().document();
        assert!(document["id"] == "s" && document["file"] == "other.html" && document["entries"].as_u64() > Some(3));
        assert_eq!(fs::read_to_string(home.path("other.html")).unwrap(), page);
        assert_eq!(home.run(["view", "s", "-o", "-"]).ok().out, page);
    }
}

#[test]
fn a_hostile_log_stays_text() {
    const HOSTILE: &str = "</pre></style><script>alert(1)</script><img src=x onerror=alert(2)>\\\" onmouseover=\\\"x' &lt; \\u0000\\u202e";
    let home = Home::new();
    let escaped = HOSTILE.replace("\\\"", "\\\\\\\"");
    let call = format!(
        r#"{{"turn":1,"step":1,"callId":"{HOSTILE}","name":"{HOSTILE}","arguments":"{{\"x\":\"{escaped}\"}}"}}"#
    );
    let todos = format!(r#"{{"todos":[{{"content":"{HOSTILE}","status":"pending"}}]}}"#);
    let lines = [
        event(0, "session/title", &format!(r#"{{"title":"{HOSTILE}"}}"#)),
        event(1, "turn/start", r#"{"turn":1}"#),
        said(2, HOSTILE),
        said(3, "x").replace(r#""kind":"user""#, &format!(r#""kind":"{HOSTILE}""#)),
        event(4, "step/start", r#"{"turn":1,"step":1}"#),
        event(5, "tool/call", &call),
        event(6, "todo/write", &todos),
        said(7, "x").replace(r#"{"type":"text","text":"x"}"#, &format!(r#"{{"type":"{HOSTILE}","a":"{HOSTILE}"}}"#)),
        said(8, "x").replace(r#"[{"type":"text","text":"x"}]"#, &format!("\"{HOSTILE}\"")),
        event(9, "turn/end", &format!(r#"{{"turn":1,"reason":{{"kind":"{HOSTILE}"}}}}"#)),
        event(10, &"<b>/x".replace('<', "&lt;"), "1"),
    ];
    let text = log("s", lines).replacen("\"createdAt\"", &format!("\"parentSession\":\"{HOSTILE}\",\"createdAt\""), 1);
    home.record("s", text);
    let page = page(&home, "s");
    assert_harmless(&page);
    assert!(page.matches("&lt;script&gt;alert(1)").count() >= 8, "{page}");
    assert!(!page.contains('\0') && !page.contains('\u{202e}'));
    // What is not known is said, not left out in silence.
    assert!(page.contains("class=\"banner\"") && page.contains("/x"), "{page}");
}

#[test]
fn a_damaged_session_is_shown_up_to_the_damage_with_a_banner() {
    let home = Home::new();
    for count in [6, 12, 18] {
        home.record("s", messages("m", count));
    }
    flip(&home.session("s").join("00000000000000000006.log"), 120);
    let ran = home.run(["view", "s", "-o", "page.html"]).with(FAILED);
    ran.says(&["session s", "checksum", "the page holds what comes before it"]);
    let page = fs::read_to_string(home.path("page.html")).unwrap();
    assert_harmless(&page);
    assert_eq!(page.matches("<article ").count(), 6);
    assert!(page.contains("role=\"alert\"") && page.contains("before event 6"), "{page}");
    let document = home.run(["view", "s", "-o", "page.html", "--json"]).with(FAILED).document();
    assert!(document["entries"] == 6 && document["error"].as_str().unwrap().contains("checksum"), "{document}");

    home.record("torn", messages("m", 3));
    home.record("torn", messages("m", 5));
    cut(&home.session("torn").join("00000000000000000003.log"), 1);
    let page = self::page(&home, "torn");
    assert!(page.contains("incomplete record") && page.matches("<article ").count() == 3, "{page}");
}

#[test]
fn what_was_replaced_and_what_was_cut_short_is_told_apart() {
    let home = Home::new();
    let replacing =
        said(3, "summary").replace("\"append\"", r#"{"op":"replace","start":1,"end":2},"sourceEventSeqs":[1,2]"#);
    let delta = |seq, text: &str| {
        let chunk = format!(r#"{{"type":"text-delta","index":0,"text":"{text}"}}"#);
        event(seq, "assistant/chunk", &format!(r#"{{"turn":1,"step":1,"chunk":{chunk}}}"#))
    };
    home.record(
        "s",
        log(
            "s",
            [
                event(0, "turn/start", r#"{"turn":1}"#),
                said(1, "first"),
                said(2, "second"),
                replacing,
                event(4, "step/start", r#"{"turn":1,"step":1}"#),
                delta(5, "half an "),
                delta(6, "answer "),
                delta(7, "and then"),
            ],
        ),
    );
    let page = page(&home, "s");
    assert_harmless(&page);
    assert_eq!(page.matches("no longer part of what the model sees").count(), 2);
    assert!(page.contains("in place of 1 to 2") && page.contains("half an answer and then"), "{page}");
    assert!(page.contains("cut short") && page.contains("Turn 1 is open: a crash left it"), "{page}");
}

#[test]
fn wrong_usage_missing_sessions_and_places_where_no_file_may_be() {
    let home = Home::with_good();
    home.run(["view", "good"]).with(USAGE).says(&["--output"]);
    home.run(["view", "good", "-o", "-", "--json"]).with(USAGE).says(&["-o"]);
    home.run(["view", "nobody", "-o", "x.html"]).with(MISSING).says(&["no session nobody"]);
    home.run(["view", "good", "-o", "nowhere/x.html"]).with(FAILED).says(&["nowhere/x.html"]);
    assert!(!home.path("x.html").exists());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        home.run(["view", "good", "-o", "x.html"]).ok();
        assert_eq!(fs::metadata(home.path("x.html")).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
