//! What a fabric is written as.

pub mod labels;
pub mod slurm;
pub mod topology;
