//! Tests of the API package: one binary, one module a subject.

#![allow(clippy::unwrap_used, reason = "an unwrap is a statement in a test")]

mod amounts;
mod crds;
mod durations;
mod objects;
mod quantities;
