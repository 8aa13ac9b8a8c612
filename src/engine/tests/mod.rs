//! Tests of the engine, in a small fixture language.

mod awaited;
mod coupled;
mod fixture;
mod legal;
mod life;
mod rules;
mod oracle;
mod stories;
mod volumes;
mod world;
