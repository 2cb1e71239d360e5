//! The session model against plain, naive models of its rules, on random programs and on recorded logs.

mod corpus;
mod program;
mod repair;
mod request;
mod session;
mod surface;
