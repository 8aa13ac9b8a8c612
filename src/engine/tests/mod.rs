//! Tests of the engine, in a small fixture language.

mod awaited;
mod check;
mod coupled;
mod evict;
mod fixture;
mod legal;
mod life;
mod limits;
mod oracle;
mod quality;
mod reclaim;
mod remedies;
mod queues;
mod rules;
mod shares;
mod stories;
mod volumes;
mod world;
