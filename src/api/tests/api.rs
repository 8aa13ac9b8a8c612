//! Tests of the API package: one binary, one module a subject.

mod amounts;
mod crds;
mod durations;
mod objects;
mod quantities;
