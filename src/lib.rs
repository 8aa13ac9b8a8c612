//! Berth: a Kubernetes scheduler for AI workloads.
