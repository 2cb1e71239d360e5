//! Rules D3 and D4: the header in force and the exact model request.

use sessionlog::event::control::{HeaderSnapshot, RequestHeader, TurnStart};
use sessionlog::event::message::UserMessage;
use sessionlog::event::{JsonText, NewEvent, Placement, SessionHeader};
use sessionlog::session::{Message, Request, RequestHead, Session, SessionOptions};

fn head(text: &str) -> RequestHead {
    RequestHead::of_snapshot(&JsonText::parse(text).unwrap()).unwrap()
}

fn session_with_header(header: &str) -> Session {
    let session = Session::create(SessionHeader::new("s"), SessionOptions::new()).unwrap();
    session.append(TurnStart::new(1)).unwrap();
    let data = JsonText::parse(&format!("{{\"header\":{header}}}")).unwrap();
    session.append_event(NewEvent::named("request/header", data)).unwrap();
    session
}

#[test]
fn d3_empty_optional_fields_are_absent_and_the_rest_is_kept_as_it_is() {
    let config = r#"{"provider":"p","model":"m"}"#;
    let bare = format!("{{\"config\":{config}}}");
    for more in [
        r#""system":"""#,
        r#""tools":[]"#,
        r#""adapterDefaults":{}"#,
        r#""adapterDefaults":{"maxTokens":false}"#,
        r#""system":"","tools":[],"adapterDefaults":{"a":false}"#,
    ] {
        let with = head(&format!("{{\"config\":{config},{more}}}"));
        assert_eq!(with, head(&bare), "{more}");
        assert_eq!(with.to_json().as_str(), bare);
    }
    let kept = format!(
        r#"{{"config":{config},"adapterDefaults":{{"a":true}},"system":"{{{{s}}}}","tools":"{{{{tools}}}}","messagePrefix":[1e0]}}"#
    );
    assert_eq!(head(&kept).to_json().as_str(), kept);
    let some = head(r#"{"adapterDefaults":{"a":true,"b":false,"c":true,"c":null}}"#);
    assert_eq!(some.to_json().as_str(), r#"{"adapterDefaults":{"a":true}}"#);
    assert_eq!((head(&bare).provider().as_deref(), head(&bare).model().as_deref()), (Some("p"), Some("m")));
    assert_eq!(head("{}").provider(), None);
    let twice = head(r#"{"x":1,"system":"a","x":2,"system":""}"#);
    assert_eq!((twice.system(), twice.to_json().as_str()), (None, r#"{"x":2}"#));
}

#[test]
fn d3_equality_is_field_by_field_and_tools_are_in_order() {
    let one = head(r#"{"config":{"a":1,"b":2},"tools":[{"name":"x"},{"name":"y"}]}"#);
    assert_eq!(one, head(r#"{"tools":[{"name":"x"},{"name":"y"}],"config":{"b":2.0,"a":1}}"#));
    assert_ne!(one, head(r#"{"config":{"a":1,"b":2},"tools":[{"name":"y"},{"name":"x"}]}"#));
    assert_ne!(one, head(r#"{"config":{"a":1,"b":2}}"#));
    assert_ne!(one, head(r#"{"config":{"a":1,"b":2},"tools":[{"name":"x"},{"name":"y"}],"more":1}"#));
}

#[test]
fn d3_the_last_snapshot_is_in_force_and_odd_ones_do_not_fail() {
    let session = session_with_header(r#"{"config":7,"tools":"{{tools}}"}"#);
    assert_eq!(session.request_header().unwrap().to_json().as_str(), r#"{"config":7,"tools":"{{tools}}"}"#);
    for odd in ["[]", "{}", r#"{"header":7}"#] {
        session.append_event(NewEvent::named("request/header", JsonText::parse(odd).unwrap())).unwrap();
    }
    assert!(session.request_header().unwrap().tools().is_some());
    let typed = HeaderSnapshot::new("p", "m").system("");
    session.append(RequestHeader::new(typed.clone(), "change")).unwrap();
    assert_eq!(session.request_header(), Some(RequestHead::of_typed(&typed).unwrap()));
    assert_eq!(session.request_header().unwrap().system(), None);
}

#[test]
fn d4_the_first_difference_is_named_with_its_path() {
    let session = session_with_header(r#"{"config":{"model":"m"},"system":"be brief"}"#);
    session.append_surface(UserMessage::text("one"), Placement::append()).unwrap();
    session.append_surface(UserMessage::text("two"), Placement::append()).unwrap();
    let request = session.request();
    session.assert_model_visible(&request).unwrap();
    let messages = || request.messages.iter().cloned();
    let path = |sent: Request| session.assert_model_visible(&sent).unwrap_err().difference.path;

    let other = head(r#"{"config":{"model":"n"},"system":"be brief"}"#);
    assert_eq!(path(Request::new(Some(other), messages())), "header.config.model");
    let other = head(r#"{"config":{"model":"m"}}"#);
    assert_eq!(path(Request::new(Some(other), messages())), "header.system");
    assert_eq!(path(Request::new(None, messages())), "header");
    let header = || request.header.clone();
    assert_eq!(path(Request::new(header(), messages().take(1))), "messages[1]");
    assert_eq!(path(Request::new(header(), messages().rev())), "messages[0].id");
    let changed = messages().map(|message| Message::parse(&message.json().as_str().replace("two", "2")).unwrap());
    let error = session.assert_model_visible(&Request::new(header(), changed)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the request differs from the log at messages[1].content[0].text: the log has \"two\", the request has \"2\""
    );
    let respelled =
        messages().map(|message| Message::parse(&message.json().as_str().replace("two", "t\\u0077o")).unwrap());
    session.assert_model_visible(&Request::new(header(), respelled)).unwrap();
    let text = request.to_json();
    assert!(text.as_str().starts_with(r#"{"header":{"config":{"model":"m"},"system":"be brief"},"messages":[{"#));
}
