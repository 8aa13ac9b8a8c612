//! Tests of the API package.
