//! Content blocks of other tools in this model's spelling. Strings are copied as they stand, escapes included.

use std::borrow::Cow;

use crate::event::json;

/// Appends a member to an object under construction, which has at least one already.
pub(super) fn put(out: &mut String, key: &str, value: &str) {
    out.push_str(",\"");
    out.push_str(key);
    out.push_str("\":");
    out.push_str(value);
}

/// An array of ready values.
pub(super) fn list<T: AsRef<str>>(values: &[T]) -> String {
    let mut out = String::from("[");
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(value.as_ref());
    }
    out.push(']');
    out
}

/// A `text` block; `text` is a JSON string.
pub(super) fn text(text: &str) -> String {
    format!("{{\"type\":\"text\",\"text\":{text}}}")
}

/// A `tool-call` block; `id` and `name` are JSON values, of which anything but a string counts as empty.
pub(super) fn tool_call(call: &Call<'_>) -> String {
    format!("{{\"type\":\"tool-call\",\"id\":{},\"name\":{},\"arguments\":{}}}", call.id, call.name, call.arguments)
}

/// A tool call: three JSON strings.
pub(super) struct Call<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: Cow<'a, str>,
}

impl<'a> Call<'a> {
    /// `arguments` is any JSON value: a string is taken as it is, anything else becomes the text of a string.
    pub(super) fn new(id: Option<&'a str>, name: Option<&'a str>, arguments: Option<&'a str>) -> Self {
        let arguments = match arguments {
            None => Cow::Borrowed("\"\""),
            Some(text) if text.starts_with('"') => Cow::Borrowed(text),
            Some(value) => Cow::Owned(json::quoted(value)),
        };
        Self { id: string_or_empty(id), name: string_or_empty(name), arguments }
    }
}

/// A JSON string, or the empty one.
pub(super) fn string_or_empty(value: Option<&str>) -> &str {
    value.filter(|value| value.starts_with('"')).unwrap_or("\"\"")
}

/// The blocks of a content value: a plain string is one text block, `block` translates each element of a list.
pub(super) fn blocks(content: Option<&str>, block: impl Fn(&str) -> String) -> Vec<String> {
    match content {
        Some(text_value) if text_value.starts_with('"') => vec![text(text_value)],
        Some(value) => match json::elements(value) {
            Some(elements) => elements.map(block).collect(),
            None => Vec::new(),
        },
        None => Vec::new(),
    }
}

/// The message of a `tool/result`; `id` is JSON text, `call` too.
pub(super) fn result_message(id: &str, call: &str, content: &[String], failed: bool) -> String {
    format!(
        "{{\"id\":{id},\"role\":\"user\",\"content\":[{{\"type\":\"tool-result\",\"toolCallId\":{call},\"content\":{},\
         \"isError\":{failed}}}],\"source\":{{\"kind\":\"tool\",\"callId\":{call}}}}}",
        list(content)
    )
}

/// A message of the user role from a source of `kind`.
pub(super) fn user_message(id: &str, content: &[String], kind: &str) -> String {
    let content = list(content);
    format!("{{\"id\":{id},\"role\":\"user\",\"content\":{content},\"source\":{{\"kind\":{}}}}}", json::quoted(kind))
}

/// A message of the model.
pub(super) fn assistant_message(id: &str, content: &[String], provider: &str, model: &str) -> String {
    format!(
        "{{\"id\":{id},\"role\":\"assistant\",\"content\":{},\"source\":{{\"kind\":\"model\",\"provider\":{},\"model\":{}}}}}",
        list(content),
        json::quoted(provider),
        json::quoted(model)
    )
}

/// A `usage` object of disjoint counts.
pub(super) fn usage(input: u64, output: u64, more: &[(&str, u64)]) -> String {
    let mut out = format!("{{\"inputTokens\":{input},\"outputTokens\":{output}");
    for (key, count) in more.iter().filter(|(_, count)| *count > 0) {
        put(&mut out, key, &count.to_string());
    }
    out.push('}');
    out
}
