//! `last`: the newest text of a session, and what is said when there is none.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use cli_common::{FAILED, Home, MISSING, USAGE, cut, event, flip, log, messages, said};

/// An event of a surface type at the tail.
fn placed(seq: u64, event_type: &str, data: &str) -> String {
    let line = event(seq, event_type, data);
    format!("{},\"surfaceOp\":\"append\"}}", line.strip_suffix('}').unwrap())
}

fn answered(seq: u64, content: &str) -> String {
    let message = format!(
        r#"{{"id":"a-{seq}","role":"assistant","content":[{content}],"source":{{"kind":"model","provider":"p","model":"m"}}}}"#
    );
    placed(seq, "assistant/message", &format!(r#"{{"turn":1,"step":1,"message":{message}}}"#))
}

fn text(text: &str) -> String {
    format!(r#"{{"type":"text","text":"{text}"}}"#)
}

fn result(seq: u64, output: &str) -> String {
    let block = format!(r#"{{"type":"tool-result","toolCallId":"c","content":[{}]}}"#, text(output));
    let message =
        format!(r#"{{"id":"t-{seq}","role":"user","content":[{block}],"source":{{"kind":"tool","callId":"c"}}}}"#);
    placed(seq, "tool/result", &format!(r#"{{"turn":1,"step":1,"message":{message}}}"#))
}

fn conversation() -> String {
    log(
        "s",
        [
            said(0, "please"),
            answered(1, &text("first")),
            answered(2, &format!("{},{}", text("the\\nlast "), text("answer"))),
            answered(3, r#"{"type":"tool-call","id":"c","name":"bash","arguments":"{}"}"#),
            result(4, "output"),
            said(5, "injected").replace(r#""kind":"user""#, r#""kind":"plugin""#),
        ],
    )
}

#[test]
fn the_last_text_of_each_role_as_it_was_written() {
    let home = Home::new();
    home.record("s", conversation());
    for seal in [false, true] {
        if seal {
            home.run(["seal", "s"]).ok();
        }
        assert_eq!(home.run(["last", "s"]).ok().out, "the\nlast answer\n");
        let document = home.run(["last", "s", "--json"]).ok().document();
        let expected = serde_json::json!({"seq": 2, "time": 1_700_000_000_002_u64, "text": "the\nlast answer"});
        assert_eq!(document, expected);
        assert_eq!(home.run(["last", "s", "--role", "user"]).ok().out, "please\n");
        assert_eq!(home.run(["last", "s", "--role", "tool"]).ok().out, "output\n");
    }
    home.run(["last", "s", "--role", "nobody"]).with(USAGE).says(&["nobody", "assistant"]);
}

#[test]
fn what_the_model_no_longer_sees_is_not_its_last_word_unless_nothing_else_is_left() {
    let home = Home::new();
    let replacing = |seq, from, to, sources: &str, line: String| {
        let op = format!(r#"{{"op":"replace","start":{from},"end":{to}}},"sourceEventSeqs":[{sources}]"#);
        let _: u64 = seq;
        line.replace("\"append\"", &op)
    };
    let rewound = [
        said(0, "q"),
        answered(1, &text("kept")),
        answered(2, &text("taken back")),
        replacing(3, 2, 2, "2", said(3, "again")),
    ];
    home.record("rewound", log("s", rewound));
    assert_eq!(home.run(["last", "rewound"]).ok().out, "kept\n");
    let compacted = [said(0, "q"), answered(1, &text("the answer")), replacing(2, 0, 1, "0,1", said(2, "summary"))];
    home.record("compacted", log("s", compacted));
    assert_eq!(home.run(["last", "compacted"]).ok().out, "the answer\n");
}

#[test]
fn without_a_text_the_status_is_1_and_the_reason_is_said() {
    let home = Home::new();
    home.record("asked", messages("m", 2));
    home.record("blank", log("m", [answered(0, &text(" \\n"))]));
    home.import("nothing", log::<&str>("m", []));
    for id in ["asked", "blank", "nothing"] {
        for json in [&[][..], &["--json"]] {
            let ran = home.run([&["last", id], json].concat()).with(FAILED);
            assert_eq!(ran.out, "");
            ran.says(&[id, "no assistant text"]);
        }
    }
    assert_eq!(home.run(["last", "asked", "--role", "user"]).ok().out, "message 1\n");
}

#[test]
fn ids_damage_and_torn_ends() {
    let home = Home::new();
    home.record("s-1", conversation());
    home.record("s-2", conversation());
    home.run(["last", "s"]).with(USAGE).says(&["s-1", "s-2"]);
    home.run(["last", "x"]).with(MISSING).says(&["no session x"]);
    for count in [4, 8, 12] {
        home.record("bad", messages("m", count));
    }
    flip(&home.session("bad").join("00000000000000000004.log"), 120);
    let ran = home.run(["last", "bad", "--role", "user"]).with(FAILED);
    assert_eq!(ran.out, "");
    ran.says(&["session bad", "sessionlog salvage bad"]);
    // The only record is torn: nothing was ever promised.
    cut(&home.journal("s-2"), 1);
    home.run(["last", "s-2"]).with(FAILED).says(&["s-2", "no assistant text"]);
    // V2: what an unknown event means for the history is not guessed.
    home.record("strange", log("m", [answered(0, &text("a")), event(1, "app/strange", "1")]));
    home.run(["last", "strange"]).with(FAILED).says(&["app/strange"]);
    assert_eq!(home.run(["last", "strange", "--assume-known", "app/strange"]).ok().out, "a\n");
}
