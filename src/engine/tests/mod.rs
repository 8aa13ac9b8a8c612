//! Tests of the engine, in a small fixture language.

mod check;
mod coupled;
mod fixture;
mod legal;
mod life;
mod quality;
mod rules;
mod oracle;
mod stories;
mod volumes;
mod world;
