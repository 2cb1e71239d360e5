//! Rules S1-S6 and D1-D2 against a model that knows nothing but vectors.

use proptest::prelude::*;
use serde_json::{Value, json};
use sessionlog::event::{Event, JsonText, NewEvent, Placement, SessionHeader, Sources, SurfaceOp};
use sessionlog::session::history::{derive_message, fold_messages};
use sessionlog::session::surface::{Replacement, fold_surface};
use sessionlog::session::{AppendError, Session, SessionOptions};

/// An append as the random program asks for it.
#[derive(Debug, Clone)]
struct Attempt {
    kind: u8,
    replace: Option<(u64, u64)>,
    sources: Option<Vec<u64>>,
    shadow_all: bool,
    call: u8,
    variant: u8,
}

fn attempt() -> impl Strategy<Value = Attempt> {
    let small = 0..12_u64;
    let replace = proptest::option::of((small.clone(), small.clone()));
    let sources = proptest::option::of(proptest::collection::vec(small, 0..5));
    (0..5_u8, replace, sources, any::<bool>(), 0..2_u8, 0..8_u8).prop_map(
        |(kind, replace, sources, shadow_all, call, variant)| Attempt {
            kind,
            replace,
            sources,
            shadow_all,
            call,
            variant,
        },
    )
}

fn data_of(attempt: &Attempt) -> (&'static str, Value) {
    let text = json!([{"type": "text", "text": attempt.variant}]);
    match attempt.kind {
        0 => ("user/message", json!({"id": "u", "role": "user", "content": text, "source": {"kind": "user"}})),
        1 => {
            let content = if attempt.variant < 3 { json!([]) } else { text };
            let message = json!({"role": "assistant", "content": content, "source": {"kind": "model"}});
            ("assistant/message", json!({"turn": 1, "step": 1, "message": message}))
        }
        2 | 3 => {
            let id = format!("c{}", attempt.call);
            let block =
                json!({"type": "tool-result", "toolCallId": id, "isError": attempt.variant == 7, "content": text});
            let mut content = vec![block.clone()];
            if attempt.variant == 6 {
                content.push(block);
            }
            let message = json!({"role": "user", "source": {"kind": "tool", "callId": id}, "content": content});
            let mut data = json!({"turn": 1, "step": 1, "message": message});
            if attempt.variant == 5 {
                data["meta"] = json!({"n": 1});
            }
            ("tool/result", data)
        }
        _ => ("app/note", json!({})),
    }
}

/// The plain model: all events, and the surface as a vector of seqs.
#[derive(Default)]
struct Naive {
    events: Vec<(String, Value)>,
    nodes: Vec<u64>,
    replacements: Vec<Replacement>,
}

impl Naive {
    /// Applies the event if the rules allow it.
    fn append(&mut self, event_type: &str, data: &Value, placement: Option<&Placement>) -> bool {
        let seq = self.events.len() as u64;
        if event_type == "tool/result" && data["message"]["content"].as_array().unwrap().len() != 1 {
            return false;
        }
        if let Some(placement) = placement {
            let sources: Option<Vec<u64>> = placement.sources().map(|sources| sources.iter().collect());
            if let Some(sources) = &sources {
                let unique: std::collections::HashSet<_> = sources.iter().collect();
                let earlier = sources.iter().all(|source| *source < seq);
                let empty_allowed = !sources.is_empty() || event_type == "assistant/message";
                if unique.len() != sources.len() || !earlier || !empty_allowed {
                    return false;
                }
            }
            match placement.op() {
                SurfaceOp::Append => self.nodes.push(seq),
                SurfaceOp::Replace { start, end } => {
                    let find = |seq| self.nodes.iter().position(|node| *node == seq);
                    let (Some(first), Some(last)) = (find(start), find(end)) else { return false };
                    if first > last {
                        return false;
                    }
                    let shadowed = self.nodes[first..=last].to_vec();
                    let sources = sources.unwrap_or_default();
                    if !shadowed.iter().all(|node| sources.contains(node)) {
                        return false;
                    }
                    if event_type == "tool/result" {
                        let (old_type, old) = &self.events[shadowed[0] as usize];
                        let blank = |data: &Value| {
                            let mut data = data.clone();
                            data["message"]["content"][0]["content"] = Value::Null;
                            data
                        };
                        if shadowed.len() != 1 || old_type != "tool/result" || blank(old) != blank(data) {
                            return false;
                        }
                    }
                    self.nodes.splice(first..=last, [seq]);
                    self.replacements.push(Replacement { seq, shadowed });
                }
            }
        }
        self.events.push((event_type.to_owned(), data.clone()));
        true
    }

    fn messages(&self) -> Vec<Value> {
        let of = |node: &u64| {
            let (event_type, data) = &self.events[*node as usize];
            let message = if event_type == "user/message" { data } else { &data["message"] };
            let hosts_usage = event_type == "assistant/message" && message["content"] == json!([]);
            (!hosts_usage).then(|| message.clone())
        };
        self.nodes.iter().filter_map(of).collect()
    }
}

fn values(messages: &[sessionlog::session::Message]) -> Vec<Value> {
    messages.iter().map(|message| serde_json::from_str(message.json().as_str()).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn s1_to_s6_live_surface_pure_fold_and_naive_model_agree(attempts in proptest::collection::vec(attempt(), 1..24)) {
        let session = Session::create(SessionHeader::new("s"), SessionOptions::new()).unwrap();
        let mut naive = Naive::default();
        let mut kept = Vec::new();
        for attempt in attempts {
            let (event_type, data) = data_of(&attempt);
            let mut placement = (event_type != "app/note").then(|| match attempt.replace {
                Some((start, end)) => Placement::replace(start, end),
                None => Placement::append(),
            });
            if let Some(bare) = placement.take() {
                let wanted = attempt.sources.clone().map(|sources| {
                    let shadowed = if attempt.shadow_all { session.surface().nodes().to_vec() } else { Vec::new() };
                    let more = sources.into_iter().filter(|seq| !shadowed.contains(seq)).collect::<Vec<_>>();
                    shadowed.into_iter().chain(more).collect::<Sources>()
                });
                placement = Some(match wanted {
                    Some(sources) => bare.from_sources(sources),
                    None => bare,
                });
            }
            let before = (session.surface(), session.messages(), session.next_seq());
            let mut new = NewEvent::named(event_type, JsonText::parse(&data.to_string()).unwrap());
            new.placement.clone_from(&placement);
            let live = session.append_event(new);
            let expected = naive.append(event_type, &data, placement.as_ref());
            prop_assert_eq!(live.is_ok(), expected, "{:?}", live);
            if let Err(error) = live {
                // S4: a refused event leaves everything as it was.
                prop_assert!(matches!(error, AppendError::Invalid(_)));
                prop_assert_eq!(&before, &(session.surface(), session.messages(), session.next_seq()));
            }
            let surface = session.surface();
            prop_assert_eq!(surface.nodes(), naive.nodes.as_slice());
            prop_assert_eq!(surface.replace_generation(), naive.replacements.len() as u64);
            let messages = session.messages();
            prop_assert_eq!(values(&messages), naive.messages());
            kept.push((messages, naive.messages()));
        }
        let events = session.events(..);
        let fold = fold_surface(&events).unwrap();
        prop_assert_eq!(&fold.surface, &session.surface());
        prop_assert_eq!(&fold.replacements, &naive.replacements);
        prop_assert_eq!(&*fold_messages(&events).unwrap(), &*session.messages());
        // D2: a snapshot that was handed out never changes.
        for (messages, then) in kept {
            prop_assert_eq!(values(&messages), then);
        }
    }
}

fn event(event_type: &str, data: &str) -> Event {
    NewEvent::named(event_type, JsonText::parse(data).unwrap()).at(0, 0)
}

#[test]
fn d1_one_event_one_message_or_none() {
    let text = |event: &Event| derive_message(event).map(|message| message.json().to_string());
    let message = r#"{"zz":1e0,"content":[{"type":"text","text":"\ud800"}]}"#;
    assert_eq!(text(&event("user/message", message)).as_deref(), Some(message));
    for event_type in ["assistant/message", "tool/result"] {
        let data = format!("{{\"turn\":1,\"message\":{message}}}");
        assert_eq!(text(&event(event_type, &data)).as_deref(), Some(message));
    }
    for (event_type, data) in [
        ("assistant/message", r#"{"message":{"content":[]},"usage":{"inputTokens":1}}"#),
        ("assistant/message", r#"{"message":7}"#),
        ("assistant/message", "{}"),
        ("user/message", "[]"),
        ("tool/result", "{}"),
        ("app/note", r#"{"message":{"content":[1]}}"#),
    ] {
        assert_eq!(text(&event(event_type, data)), None, "{event_type} {data}");
    }
}

#[test]
fn s3_everything_but_the_content_counts_by_value() {
    let result = |data: &str, placement: Placement| {
        NewEvent::named("tool/result", JsonText::parse(data).unwrap()).placed(placement)
    };
    let old = r#"{"turn":1,"step":1.0,"meta":{"a":1,"b":[2]},"message":{"id":"m","x":1,"source":{"callId":"c"},
        "content":[{"type":"tool-result","toolCallId":"c","content":[1]}]}}"#;
    let cases = [
        // Another order, other spellings, a shadowed duplicate and another content: the same result.
        (
            r#"{"step":1,"turn":9,"turn":1,"meta":{"b":[2e0],"a":1},"message":{"source":{"callId":"\u0063"},"id":"m","x":1,
            "content":[{"toolCallId":"c","type":"tool-result","content":"cut"}]}}"#,
            true,
        ),
        (
            r#"{"turn":1,"step":1,"meta":{"a":1,"b":[2]},"message":{"id":"m","x":1,"source":{"callId":"c"},
            "content":[{"type":"tool-result","toolCallId":"c"}]}}"#,
            true,
        ),
        (
            r#"{"turn":1,"step":1,"meta":{"a":1,"b":[2,3]},"message":{"id":"m","x":1,"source":{"callId":"c"},
            "content":[{"type":"tool-result","toolCallId":"c","content":[1]}]}}"#,
            false,
        ),
        (
            r#"{"turn":1,"step":1,"meta":{"a":1,"b":[2]},"message":{"id":"m","x":2,"source":{"callId":"c"},
            "content":[{"type":"tool-result","toolCallId":"c","content":[1]}]}}"#,
            false,
        ),
        (
            r#"{"turn":1,"step":1,"meta":{"a":1,"b":[2]},"message":{"id":"m","x":1,"source":{"callId":"c"},
            "content":[{"type":"tool-result","toolCallId":"c","content":[1],"isError":true}]}}"#,
            false,
        ),
        (
            r#"{"turn":1,"step":1,"meta":{"a":1,"b":[2]},"message":{"id":"m","x":1,"source":{"callId":"d"},
            "content":[{"type":"tool-result","toolCallId":"d","content":[1]}]}}"#,
            false,
        ),
        (
            r#"{"turn":1,"step":1,"meta":{"a":1,"b":[2]},"extra":0,"message":{"id":"m","x":1,"source":{"callId":"c"},
            "content":[{"type":"tool-result","toolCallId":"c","content":[1]}]}}"#,
            false,
        ),
    ];
    for (new, accepted) in cases {
        let session = Session::create(SessionHeader::new("s"), SessionOptions::new()).unwrap();
        session.append_event(result(old, Placement::append())).unwrap();
        let replaced = session.append_event(result(new, Placement::replace(0, 0).from([0])));
        assert_eq!(replaced.is_ok(), accepted, "{new}: {replaced:?}");
    }
}
