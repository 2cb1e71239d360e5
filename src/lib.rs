//! The storage engine for the memory of AI agents: crash-safe, append-only session logs, and the message history that a model
//! sees, derived from the log and from nothing else.
//!
//! # The idea
//!
//! A session is an append-only log of typed [`Event`](event::Event)s. The log *is* the state: messages, request header, todo list
//! and token usage are pure functions of any prefix of it (**model-visible <=> logged**). So resuming, forking, replaying and
//! inspecting are one thing: reading the log.
//!
//! # Where to start
//!
//! - An agent or agent server: [`store::Store`] opens live sessions over a backend; [`store::LiveSession`] is what the agent loop
//!   appends to and flushes. The README's quick start is the whole shape of it.
//! - Your own event types: [`log_event!`]. Your own storage: [`backend::Backend`] and [`backend::conformance`].
//! - The model alone, synchronous and without I/O: [`session::Session`].
//! - Reading a log without a store or a lock: [`segment::Reader`].
//! - Logs from elsewhere: [`interop`].
//!
//! # Layers
//!
//! `store` (tokio) is built on `session` (pure) and `backend` (the trait); `segment` is the default backend. `event` is spoken by all.
//! Each layer knows only the one below it, and everything but `store` compiles without tokio: `--no-default-features`.
//!
//! # What is promised
//!
//! A flush that returns `Ok` survives a crash of the process and of the machine. What is not flushed is written within the window
//! and may be lost with a crash, as a suffix and never in the middle. Nothing accepted is changed, dropped or numbered twice.
//! Damage is reported with its place, not skipped. `format-spec/` in the repository describes every byte.

#![deny(unsafe_code)]

pub mod backend;
pub mod event;
pub mod interop;
pub mod sample;
pub mod segment;
pub mod session;
#[cfg(feature = "store")]
pub mod store;
mod sync;

/// The README's examples, compiled and run.
#[cfg(all(doctest, feature = "store"))]
#[doc = include_str!("../README.md")]
struct Readme;
