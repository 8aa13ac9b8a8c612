//! Tests of the engine, in a small fixture language.

mod fixture;
mod oracle;
mod stories;
mod volumes;
mod world;
