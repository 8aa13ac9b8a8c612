//! Label and annotation keys.
