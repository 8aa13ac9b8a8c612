//! Go durations (`1h30m`, `90s`, `-1s`, `1.5h`), parsed exactly to milliseconds.
//!
//! The grammar is that of Go's `time.ParseDuration`, which KAI Scheduler's fields and annotations use.

use crate::decimal::{Decimal, DecimalError, MAX_DIGITS, Rounding, split_sign};
use crate::quantity::shorten;

/// The grammar as a schema pattern.
pub const PATTERN: &str = r"^[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";

/// Units and their nanoseconds; a unit stands before any that is its beginning.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Nanoseconds in a millisecond.
const NANOS_PER_MILLI: i64 = 1_000_000;

/// Why a text can't be used as a duration. The message names the text and what is allowed.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
pub enum DurationError {
    /// The text is empty.
    #[error("the duration is empty; allowed is one such as 90s, 1h30m or 1.5h")]
    Empty,
    /// A number is missing or is none.
    #[error(
        "\"{0}\" is no duration; allowed is one such as 90s, 1h30m or 1.5h, with at most {MAX_DIGITS} significant digits a number"
    )]
    Number(String),
    /// A number without a unit, or with an unknown one.
    #[error("\"{0}\" has a number without a known unit; allowed are ns, us, ms, s, m and h")]
    Unit(String),
    /// Finer than a millisecond.
    #[error("\"{0}\" is finer than a millisecond; allowed are whole milliseconds")]
    TooFine(String),
    /// Beyond Go's own range of about 292 years.
    #[error("\"{0}\" is out of range; allowed is up to 2562047h47m16.854s either way")]
    OutOfRange(String),
}

/// Milliseconds of a Go duration, which may be negative.
pub fn parse_duration_millis(text: &str) -> Result<i64, DurationError> {
    let (negative, mut rest) = split_sign(text);
    if rest.is_empty() {
        return Err(DurationError::Empty);
    }
    if rest == "0" {
        return Ok(0);
    }
    let mut nanos: i64 = 0;
    while !rest.is_empty() {
        let (number, tail) = Decimal::parse_unsigned_prefix(rest)
            .map_err(|_| DurationError::Number(shorten(text)))?;
        let unit = UNITS
            .iter()
            .find(|(unit, _)| tail.starts_with(unit) && !(*unit == "m" && tail.starts_with("ms")));
        let (unit, factor) = unit.ok_or_else(|| DurationError::Unit(shorten(text)))?;
        let part = number
            .scaled(*factor, 0, Rounding::Exact)
            .map_err(|error| match error {
                DecimalError::Inexact => DurationError::TooFine(shorten(text)),
                DecimalError::Malformed | DecimalError::Overflow => {
                    DurationError::OutOfRange(shorten(text))
                }
            })?;
        nanos = nanos
            .checked_add(part)
            .ok_or_else(|| DurationError::OutOfRange(shorten(text)))?;
        rest = &tail[unit.len()..];
    }
    if nanos % NANOS_PER_MILLI != 0 {
        return Err(DurationError::TooFine(shorten(text)));
    }
    let millis = nanos / NANOS_PER_MILLI;
    Ok(if negative { -millis } else { millis })
}
