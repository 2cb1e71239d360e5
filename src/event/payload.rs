//! Typed payloads (rule V1): a Rust type per event type, with the name on the type.
//!
//! An application's own event is a struct with serde derives and one line:
//!
//! ```
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct DeployStarted {
//!     target: String,
//! }
//! sessionlog::log_event!(DeployStarted, "deploy/started");
//! ```

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::json::{JsonError, JsonText};
use super::strict::{self, Refused};

/// A payload type and the event type name it belongs to.
pub trait Payload: Serialize + DeserializeOwned {
    /// The event type's name, by convention `owner/name`.
    const TYPE: &'static str;

    /// Whether readers that do not know the type may skip such an event. Set it only on purely informational records.
    const IGNORABLE: bool = false;

    /// Fills ids that the caller left empty; called once, right before the event is accepted.
    #[doc(hidden)]
    fn fill_ids(&mut self, _next_id: &mut dyn FnMut() -> String) {}

    /// The payload as a streamed delta, if it is one that packs.
    #[doc(hidden)]
    fn as_delta(&self) -> Option<super::chunk::Delta<'_>> {
        None
    }

    /// The payload that [`Payload::as_delta`] gave this delta for, if the type is the one whose payloads pack.
    #[doc(hidden)]
    fn of_delta(_delta: &super::chunk::Delta<'_>) -> Option<Self> {
        None
    }
}

/// A payload whose events are log-only: they carry no placement and produce no message. Appending one with a placement does
/// not compile:
///
/// ```compile_fail,E0277
/// # use sessionlog::event::{Placement, SessionHeader, control::TurnStart};
/// # use sessionlog::session::{Session, SessionOptions};
/// # let session = Session::create(SessionHeader::new("s-1"), SessionOptions::new()).unwrap();
/// session.append_surface(TurnStart::new(1), Placement::append());
/// ```
pub trait LogPayload: Payload {}

/// A payload whose events produce messages and therefore need a [`super::Placement`]. The core's three surface types are the only
/// ones (`user/message`, `assistant/message`, `tool/result`). Appending one without a placement does not compile:
///
/// ```compile_fail,E0277
/// # use sessionlog::event::{SessionHeader, message::UserMessage};
/// # use sessionlog::session::{Session, SessionOptions};
/// # let session = Session::create(SessionHeader::new("s-1"), SessionOptions::new()).unwrap();
/// session.append(UserMessage::text("where does this go?"));
/// ```
pub trait SurfacePayload: Payload + sealed::Sealed {}

/// A log-only payload that may be appended outside the agent loop's ordinary lifecycle (rule L6).
pub trait OutOfBandPayload: LogPayload {}

pub(crate) mod sealed {
    /// Keeps the set of surface payloads to the core's.
    pub trait Sealed {}
}

/// Names the event type of an application's payload: log-only and required by default, `ignorable` and `out_of_band` on request.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// #[derive(Serialize, Deserialize)]
/// struct Heartbeat {}
/// sessionlog::log_event!(Heartbeat, "monitor/heartbeat", ignorable, out_of_band);
/// ```
#[macro_export]
macro_rules! log_event {
    ($payload:ty, $name:literal) => {
        impl $crate::event::Payload for $payload {
            const TYPE: &'static str = $name;
        }
        impl $crate::event::LogPayload for $payload {}
    };
    ($payload:ty, $name:literal, ignorable) => {
        impl $crate::event::Payload for $payload {
            const TYPE: &'static str = $name;
            const IGNORABLE: bool = true;
        }
        impl $crate::event::LogPayload for $payload {}
    };
    ($payload:ty, $name:literal, out_of_band) => {
        $crate::log_event!($payload, $name);
        impl $crate::event::OutOfBandPayload for $payload {}
    };
    ($payload:ty, $name:literal, ignorable, out_of_band) => {
        $crate::log_event!($payload, $name, ignorable);
        impl $crate::event::OutOfBandPayload for $payload {}
    };
}

/// Why a typed payload is refused at the call site (rule E2).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PayloadError {
    /// A value that JSON would change silently or cannot hold.
    NotLossless {
        /// What it is, such as "NaN" or "a map key that is not a string".
        what: String,
    },
    /// The type's own `Serialize` reported an error.
    Custom(String),
    /// A raw JSON part of the payload is not valid.
    Json(JsonError),
}

impl fmt::Display for PayloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLossless { what } => write!(f, "payload is not lossless JSON: {what}"),
            Self::Custom(text) => write!(f, "payload cannot be serialized: {text}"),
            Self::Json(error) => write!(f, "payload: {error}"),
        }
    }
}

impl std::error::Error for PayloadError {}

/// The compact JSON text of a typed payload.
///
/// # Errors
/// [`PayloadError`] for NaN, infinities, negative zero and map keys that are not strings.
pub fn to_json<T: Serialize + ?Sized>(payload: &T) -> Result<JsonText, PayloadError> {
    let text = strict::to_string(payload).map_err(|refused| match refused {
        Refused::NotLossless(what) => PayloadError::NotLossless { what },
        Refused::Custom(text) => PayloadError::Custom(text),
    })?;
    // Raw JSON inside a typed payload may carry white space; the pass also proves the syntax of what `Serialize` produced.
    JsonText::parse(&text).map_err(PayloadError::Json)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn e2_refuses_what_json_would_change_silently() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0] {
            assert!(matches!(to_json(&[Some(number)]), Err(PayloadError::NotLossless { .. })), "{number}");
        }
        for number in [f32::NAN, -0.0_f32] {
            assert!(matches!(to_json(&(1, number)), Err(PayloadError::NotLossless { .. })));
        }
        let keyed: BTreeMap<u8, u8> = [(1, 2)].into();
        assert!(matches!(to_json(&keyed), Err(PayloadError::NotLossless { .. })));
        let keyed: BTreeMap<bool, u8> = [(true, 2)].into();
        assert!(matches!(to_json(&keyed), Err(PayloadError::NotLossless { .. })));
        assert_eq!(to_json(&BTreeMap::from([("a", 0.1_f64)])).unwrap().as_str(), r#"{"a":0.1}"#);
    }

    #[test]
    fn e2_raw_parts_are_taken_as_they_are_but_never_with_line_breaks() {
        let raw: Box<serde_json::value::RawValue> = serde_json::from_str("{ \"a\":\n -0.0 }").unwrap();
        assert_eq!(to_json(&[raw]).unwrap().as_str(), r#"[{"a":-0.0}]"#);
    }

    #[test]
    fn every_serde_shape_passes_unchanged() {
        #[derive(Serialize)]
        enum Shape {
            Unit,
            New(u8),
            Tuple(u8, i128),
            Struct { a: Option<char>, b: () },
        }
        #[derive(Serialize)]
        struct Wrapper(Vec<Shape>);
        #[derive(Serialize)]
        struct Pair(u8, &'static str);
        let shapes =
            Wrapper(vec![Shape::Unit, Shape::New(1), Shape::Tuple(2, -3), Shape::Struct { a: Some('x'), b: () }]);
        assert_eq!(to_json(&shapes).unwrap().as_str(), serde_json::to_string(&shapes).unwrap());
        assert_eq!(to_json(&Pair(1, "z")).unwrap().as_str(), r#"[1,"z"]"#);
    }
}
