//! Custom resource types, keys and quantities.
