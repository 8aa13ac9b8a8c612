//! Kubernetes quantities (`500m`, `1.5Gi`, `1e3`), parsed exactly to `i64` in a unit that the function's name says.
//!
//! The grammar is that of `k8s.io/apimachinery` `resource.Quantity`: sign, decimal number, then a binary suffix (`Ki` to
//! `Ei`), a decimal suffix (`n u m k M G T P E`) or an exponent (`e3`, `E3`). Stricter in one point: a value outside `i64`
//! is an error, where Kubernetes silently takes the largest one.

use crate::decimal::{Decimal, DecimalError, MAX_DIGITS, Rounding, split_sign};

/// Why a text can't be used as a quantity. The message names the text and what is allowed.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
pub enum QuantityError {
    /// The text is empty.
    #[error("the quantity is empty; allowed is a number such as 2, 500m or 1.5Gi")]
    Empty,
    /// No number at the start, or a number that is none (`abc`, `1.5.2`).
    #[error(
        "\"{text}\" does not start with a decimal number; allowed is a number such as 2, 500m or 1.5Gi"
    )]
    Number {
        /// The text, shortened to 64 characters.
        text: String,
    },
    /// Something after the number that is no suffix (`1Kii`).
    #[error(
        "\"{text}\" has the unknown suffix \"{suffix}\"; allowed are n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent such as e3"
    )]
    Suffix {
        /// The text, shortened to 64 characters.
        text: String,
        /// What follows the number, shortened likewise.
        suffix: String,
    },
    /// More digits than any quantity needs.
    #[error("\"{text}\" has too many digits; allowed are {MAX_DIGITS} significant ones")]
    Digits {
        /// The text, shortened to 64 characters.
        text: String,
    },
    /// Outside what 64 bits of the unit hold.
    #[error("\"{text}\" is out of range; allowed is up to {allowed} either way")]
    OutOfRange {
        /// The text, shortened to 64 characters.
        text: String,
        /// The largest allowed value, with its unit.
        allowed: &'static str,
    },
}

/// Largest value in thousandths, as messages show it.
const MAX_MILLIS: &str = "9223372036854775807m";

/// Largest value in whole units, as messages show it.
const MAX_UNITS: &str = "9223372036854775807";

/// Longest part of a bad text that a message repeats, in characters.
const MAX_TEXT: usize = 64;

/// Thousandths of the quantity's unit (CPU: millicores). Finer digits round away from zero, as Kubernetes does.
pub fn parse_millis(text: &str) -> Result<i64, QuantityError> {
    parse_scaled(text, 3, Rounding::Up, MAX_MILLIS)
}

/// Thousandths, rounded down: for CPU capacity, which must not be overstated.
pub fn parse_millis_floor(text: &str) -> Result<i64, QuantityError> {
    parse_scaled(text, 3, Rounding::Floor, MAX_MILLIS)
}

/// Whole units (memory: bytes; extended resources: devices). Fractions round away from zero, as Kubernetes does.
pub fn parse_units(text: &str) -> Result<i64, QuantityError> {
    parse_scaled(text, 0, Rounding::Up, MAX_UNITS)
}

/// Whole units, rounded down: for capacities, which must not be overstated.
pub fn parse_units_floor(text: &str) -> Result<i64, QuantityError> {
    parse_scaled(text, 0, Rounding::Floor, MAX_UNITS)
}

fn parse_scaled(
    text: &str,
    power: i64,
    rounding: Rounding,
    allowed: &'static str,
) -> Result<i64, QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Empty);
    }
    let (negative, unsigned) = split_sign(text);
    let (decimal, suffix) =
        Decimal::parse_unsigned_prefix(unsigned).map_err(|_| number_error(text, unsigned))?;
    let out_of_range = || QuantityError::OutOfRange {
        text: shorten(text),
        allowed,
    };
    let unknown_suffix = || QuantityError::Suffix {
        text: shorten(text),
        suffix: shorten(suffix),
    };
    let (factor, suffix_power) = match suffix {
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "" => (1, 0),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E']).ok_or_else(unknown_suffix)?;
            let decimal = decimal
                .times_power_of_ten(exponent)
                .map_err(|error| match error {
                    DecimalError::Overflow => out_of_range(),
                    DecimalError::Malformed | DecimalError::Inexact => unknown_suffix(),
                })?;
            return decimal
                .with_sign(negative)
                .scaled(1, power, rounding)
                .map_err(|_| out_of_range());
        }
    };
    decimal
        .with_sign(negative)
        .scaled(factor, power + suffix_power, rounding)
        .map_err(|_| out_of_range())
}

/// Tells a text without a number from one with too many digits.
fn number_error(text: &str, unsigned: &str) -> QuantityError {
    let number: &str = unsigned
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .next()
        .unwrap_or_default();
    let is_number = number.bytes().any(|byte| byte != b'.') && number.matches('.').count() < 2;
    match is_number {
        true => QuantityError::Digits {
            text: shorten(text),
        },
        false => QuantityError::Number {
            text: shorten(text),
        },
    }
}

/// The start of a text from outside, for a message.
pub(crate) fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
