//! session
pub mod upgrade;
