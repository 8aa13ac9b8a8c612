//! Starts a real control plane for tests and the demo.
