//! The session header: the immutable facts about a session that stand outside its log (semantics L4).

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use super::json::{self, JsonError, JsonText};
use super::limits::{MAX_HEADER_BYTES, MAX_ID_BYTES, MAX_SAFE_INTEGER};

/// The session format that this crate writes (semantics section 9).
pub const FORMAT_VERSION: u64 = 1;

/// A session's id: any non-empty text of at most [`MAX_ID_BYTES`] bytes. Ids never become file names as they are.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// Checks and wraps an id.
    ///
    /// # Errors
    /// [`HeaderError`] when the id is empty or too long.
    pub fn new(id: impl AsRef<str>) -> Result<Self, HeaderError> {
        let id = id.as_ref();
        if id.is_empty() {
            return Err(HeaderError::member("id", "is empty"));
        }
        if id.len() > MAX_ID_BYTES {
            return Err(HeaderError::member("id", "is longer than 1024 bytes"));
        }
        Ok(Self(id.into()))
    }

    /// The id as given. For messages to people use `Display`, which escapes control characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            if letter.is_control() { write!(f, "{}", letter.escape_default())? } else { write!(f, "{letter}")? }
        }
        Ok(())
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl TryFrom<&str> for SessionId {
    type Error = HeaderError;

    fn try_from(id: &str) -> Result<Self, HeaderError> {
        Self::new(id)
    }
}

impl TryFrom<String> for SessionId {
    type Error = HeaderError;

    fn try_from(id: String) -> Result<Self, HeaderError> {
        Self::new(id)
    }
}

impl TryFrom<&SessionId> for SessionId {
    type Error = HeaderError;

    fn try_from(id: &SessionId) -> Result<Self, HeaderError> {
        Ok(id.clone())
    }
}

/// Why a session header is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("session header: {detail}")]
pub struct HeaderError {
    /// What is wrong, naming the member.
    pub detail: String,
}

impl HeaderError {
    fn member(member: &str, problem: &str) -> Self {
        Self { detail: format!("member \"{member}\" {problem}") }
    }
}

impl From<JsonError> for HeaderError {
    fn from(error: JsonError) -> Self {
        Self { detail: error.detail }
    }
}

/// The header of a session. Immutable once the session exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionHeader {
    /// Format version of the log ([`FORMAT_VERSION`] for new ones).
    pub version: u64,
    /// The session's id.
    pub id: String,
    /// Epoch milliseconds; `None` lets the store's clock fill it at creation.
    pub created_at: Option<i64>,
    /// Working directory. New sessions need an absolute one (Unix or Windows form); imported headers keep what was recorded.
    pub cwd: Option<String>,
    /// The session that this one was forked from.
    pub parent_session: Option<String>,
    /// Number of events taken over from the parent.
    pub seed_length: Option<u64>,
    /// `subagent` for a session that an agent started.
    pub origin: Option<String>,
    /// How deep the delegation goes that led here.
    pub delegation_depth: Option<u64>,
    /// Name of the agent preset.
    pub agent_preset: Option<String>,
    /// Members that this crate does not know, kept in order.
    pub extra: Vec<(String, JsonText)>,
}

impl SessionHeader {
    /// A header for a new session. Nothing is checked until it is used.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            version: FORMAT_VERSION,
            id: id.into(),
            created_at: None,
            cwd: None,
            parent_session: None,
            seed_length: None,
            origin: None,
            delegation_depth: None,
            agent_preset: None,
            extra: Vec::new(),
        }
    }

    /// Sets the working directory, an absolute path of Unix or Windows form.
    pub fn cwd(mut self, cwd: impl Into<String>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    /// Sets the creation time in epoch milliseconds.
    pub fn created_at(mut self, milliseconds: i64) -> Self {
        self.created_at = Some(milliseconds);
        self
    }

    /// Marks the session as a subagent's, `depth` delegations deep.
    pub fn subagent(mut self, parent: impl Into<String>, depth: u64) -> Self {
        self.origin = Some("subagent".into());
        self.parent_session = Some(parent.into());
        self.delegation_depth = Some(depth);
        self
    }

    /// Sets the agent preset's name.
    pub fn agent_preset(mut self, preset: impl Into<String>) -> Self {
        self.agent_preset = Some(preset.into());
        self
    }

    /// The id, checked.
    ///
    /// # Errors
    /// [`HeaderError`] when it is empty or too long.
    pub fn session_id(&self) -> Result<SessionId, HeaderError> {
        SessionId::new(&self.id)
    }

    /// Checks everything that a newly created session's header must satisfy.
    ///
    /// # Errors
    /// [`HeaderError`] naming the member.
    pub fn check_new(&self) -> Result<(), HeaderError> {
        if self.version != FORMAT_VERSION {
            return Err(HeaderError::member("version", "is not the version that new sessions are written in"));
        }
        if self.cwd.as_deref().is_some_and(|cwd| !is_absolute(cwd)) {
            return Err(HeaderError::member("cwd", "is not an absolute path of Unix or Windows form"));
        }
        self.check_stored()
    }

    /// Checks what holds for every header, imported ones included.
    ///
    /// # Errors
    /// [`HeaderError`] naming the member.
    pub fn check_stored(&self) -> Result<(), HeaderError> {
        self.session_id()?;
        if self.created_at.is_some_and(|time| !(0..=MAX_SAFE_INTEGER).contains(&time)) {
            return Err(HeaderError::member("createdAt", "is not an integer from 0 to 2^53-1"));
        }
        let safe = |number: Option<u64>| number.is_none_or(|number| number <= MAX_SAFE_INTEGER.unsigned_abs());
        if !safe(self.seed_length) || !safe(self.delegation_depth) || !safe(Some(self.version)) {
            return Err(HeaderError { detail: "a number exceeds 2^53-1".into() });
        }
        if self.to_line().len() > MAX_HEADER_BYTES {
            return Err(HeaderError { detail: format!("larger than {MAX_HEADER_BYTES} bytes") });
        }
        Ok(())
    }

    /// Reads the version alone, before anything that depends on it (N2). `0` when the header states none (N3).
    ///
    /// # Errors
    /// [`HeaderError`] when `text` is no JSON object or the version no integer.
    pub fn version_of(text: &JsonText) -> Result<u64, HeaderError> {
        if json::members(text.as_str()).is_none() {
            return Err(HeaderError { detail: "is not a JSON object".into() });
        }
        match json::member(text.as_str(), "version") {
            None => Ok(0),
            Some(number) => json::integer(number)
                .and_then(|number| u64::try_from(number).ok())
                .ok_or_else(|| HeaderError::member("version", "is not an integer from 0")),
        }
    }

    /// Reads a header line, `{"type":"session",..}`. The tag itself is optional. Unknown members are kept.
    ///
    /// # Errors
    /// [`HeaderError`] naming the member.
    pub fn parse(text: &JsonText) -> Result<Self, HeaderError> {
        let version = Self::version_of(text)?;
        let mut header = Self { version, ..Self::new("") };
        let members =
            json::members(text.as_str()).ok_or_else(|| HeaderError { detail: "is not a JSON object".into() })?;
        // Before anything is taken apart: what is larger cannot become a header that is kept.
        if text.len() > MAX_HEADER_BYTES {
            return Err(HeaderError { detail: format!("larger than {MAX_HEADER_BYTES} bytes") });
        }
        let mut seen: HashSet<String> = HashSet::new();
        for (key, value) in members {
            if seen.contains(key.as_ref()) {
                return Err(HeaderError::member(&key, "occurs twice"));
            }
            let wrong = |problem: &str| HeaderError::member(&key, problem);
            let text_value = || json::string(value).map(String::from).ok_or_else(|| wrong("is not a string"));
            let number = || {
                let number = json::integer(value).filter(|number| (0..=MAX_SAFE_INTEGER).contains(number));
                number.ok_or_else(|| wrong("is not an integer from 0 to 2^53-1"))
            };
            match key.as_ref() {
                "type" if text_value()? == "session" => {}
                "type" => return Err(wrong("is not \"session\"")),
                "version" => {}
                "id" => header.id = text_value()?,
                "createdAt" => header.created_at = Some(number()?),
                "cwd" => header.cwd = Some(text_value()?),
                "parentSession" => header.parent_session = Some(text_value()?),
                "seedLength" => header.seed_length = Some(number()?.unsigned_abs()),
                "origin" => header.origin = Some(text_value()?),
                "delegationDepth" => header.delegation_depth = Some(number()?.unsigned_abs()),
                "agentPreset" => header.agent_preset = Some(text_value()?),
                _ => header.extra.push((key.to_string(), JsonText::trusted(value))),
            }
            seen.insert(key.into_owned());
        }
        if !seen.contains("id") {
            return Err(HeaderError::member("id", "is missing"));
        }
        header.check_stored()?;
        Ok(header)
    }

    /// The header as one line of JSON, members in the order of this struct, absent ones left out.
    pub fn to_line(&self) -> String {
        let mut out = format!("{{\"type\":\"session\",\"version\":{},\"id\":{}", self.version, json::quoted(&self.id));
        let mut member = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                out.push(',');
                out.push_str(&json::quoted(key));
                out.push(':');
                out.push_str(&value);
            }
        };
        let text = |value: &Option<String>| value.as_deref().map(json::quoted);
        member("createdAt", self.created_at.map(|number| number.to_string()));
        member("cwd", text(&self.cwd));
        member("parentSession", text(&self.parent_session));
        member("seedLength", self.seed_length.map(|number| number.to_string()));
        member("origin", text(&self.origin));
        member("delegationDepth", self.delegation_depth.map(|number| number.to_string()));
        member("agentPreset", text(&self.agent_preset));
        for (key, value) in &self.extra {
            member(key, Some(value.as_str().to_owned()));
        }
        out.push('}');
        out
    }
}

/// Whether `path` is absolute in Unix form (`/..`) or Windows form (`C:\..`, `C:/..`, `\\server\..`).
pub fn is_absolute(path: &str) -> bool {
    let drive = matches!(path.as_bytes(), [letter, b':', b'/' | b'\\', ..] if letter.is_ascii_alphabetic());
    path.starts_with('/') || path.starts_with("\\\\") || drive
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<SessionHeader, HeaderError> {
        SessionHeader::parse(&JsonText::parse(text).unwrap())
    }

    #[test]
    fn l4_a_header_keeps_every_member() {
        let text = r#"{"type":"session","version":1,"id":"a","createdAt":5,"cwd":"C:\\x","parentSession":"p","seedLength":3,"origin":"subagent","delegationDepth":1,"agentPreset":"q","zz":{"b":1.50}}"#;
        assert_eq!(parse(text).unwrap().to_line(), text);
        assert_eq!(parse(r#"{"id":"a"}"#).unwrap().version, 0);
    }

    #[test]
    fn l4_refusals_name_the_member() {
        for (text, member) in [
            (r#"{"version":1}"#, "id"),
            (r#"{"id":""}"#, "id"),
            (r#"{"id":7}"#, "id"),
            (r#"{"id":"a","createdAt":-1}"#, "createdAt"),
            (r#"{"id":"a","createdAt":1.5}"#, "createdAt"),
            (r#"{"id":"a","version":"1"}"#, "version"),
            (r#"{"id":"a","id":"b"}"#, "id"),
            (r#"{"type":"other","id":"a"}"#, "type"),
        ] {
            assert!(parse(text).unwrap_err().to_string().contains(&format!("\"{member}\"")), "{text}");
        }
        assert!(SessionHeader::new("a").cwd("rel/ative").check_new().is_err());
        for cwd in ["/a", "C:\\a", "d:/a", "\\\\host\\share"] {
            SessionHeader::new("a").cwd(cwd).check_new().unwrap();
        }
        assert!(SessionId::new("x".repeat(1025)).is_err());
        assert_eq!(SessionId::new("a\u{1b}[2J").unwrap().to_string(), "a\\u{1b}[2J");
    }
}
