//! Tests of the engine, in a small fixture language.

mod awaited;
mod coupled;
mod fixture;
mod legal;
mod life;
mod oracle;
mod queues;
mod rules;
mod shares;
mod stories;
mod volumes;
mod world;
