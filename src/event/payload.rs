//! Typed payloads (rule V1).
pub trait Payload: serde::Serialize + serde::de::DeserializeOwned {
    const TYPE: &'static str;
}
pub trait LogPayload: Payload {}
pub trait SurfacePayload: Payload {}
pub trait OutOfBandPayload: LogPayload {}
