//! A decimal number read from text and scaled to an integer: the one place where digits become `i64`.
//!
//! Exact: no floats, every operation checked. Knows nothing about suffixes and units.

/// A number `±mantissa * 10^exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    negative: bool,
    mantissa: u128,
    exponent: i64,
}

/// What to do with digits below the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// They are an error.
    Exact,
    /// Away from zero, as Kubernetes rounds requests.
    Up,
    /// Towards negative infinity: a capacity is never overstated.
    Floor,
}

/// Why a text is no number of the wanted kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecimalError {
    /// Not a decimal number, or more than [`MAX_DIGITS`] significant digits.
    Malformed,
    /// Digits below the unit where none are allowed.
    Inexact,
    /// Outside `i64`.
    Overflow,
}

/// The most significant digits of a number: with them, a product with any suffix's factor (up to 2^60) fits in 128 bits.
pub(crate) const MAX_DIGITS: usize = 20;

/// Longest exponent that is read, in digits; anything longer is far out of range.
const MAX_EXPONENT_DIGITS: usize = 9;

impl Decimal {
    /// Reads a whole text: sign, digits, fraction, exponent.
    pub(crate) fn parse(text: &str) -> Result<Self, DecimalError> {
        let (negative, unsigned) = split_sign(text);
        let (mut decimal, rest) = Self::parse_unsigned_prefix(unsigned)?;
        decimal.negative = negative;
        match rest.as_bytes() {
            [] => Ok(decimal),
            [b'e' | b'E', ..] => decimal.times_power_of_ten(&rest[1..]),
            _ => Err(DecimalError::Malformed),
        }
    }

    /// Reads digits with an optional point (`12`, `1.5`, `.5`, `5.`) and returns what follows them.
    pub(crate) fn parse_unsigned_prefix(text: &str) -> Result<(Self, &str), DecimalError> {
        let end = text
            .bytes()
            .position(|byte| !byte.is_ascii_digit() && byte != b'.')
            .unwrap_or(text.len());
        let (number, rest) = text.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(DecimalError::Malformed);
        }
        let mut exponent = -i64::try_from(fraction.len()).map_err(|_| DecimalError::Malformed)?;
        let digits = [whole, fraction].concat();
        let significant = digits.trim_end_matches('0');
        exponent +=
            i64::try_from(digits.len() - significant.len()).map_err(|_| DecimalError::Malformed)?;
        let significant = significant.trim_start_matches('0');
        if significant.len() > MAX_DIGITS {
            return Err(DecimalError::Malformed);
        }
        let mantissa = significant.bytes().fold(0, |value: u128, digit| {
            value * 10 + u128::from(digit - b'0')
        });
        Ok((
            Self {
                negative: false,
                mantissa,
                exponent,
            },
            rest,
        ))
    }

    /// The same number with the given sign.
    pub(crate) fn with_sign(self, negative: bool) -> Self {
        Self { negative, ..self }
    }

    /// Multiplies by ten to the power of an exponent in text (`3`, `+3`, `-3`).
    pub(crate) fn times_power_of_ten(self, exponent: &str) -> Result<Self, DecimalError> {
        let (negative, digits) = split_sign(exponent);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(DecimalError::Malformed);
        }
        let digits = digits.trim_start_matches('0');
        if digits.len() > MAX_EXPONENT_DIGITS {
            return if negative {
                Err(DecimalError::Malformed)
            } else {
                Err(DecimalError::Overflow)
            };
        }
        let power = digits
            .bytes()
            .fold(0, |value: i64, digit| value * 10 + i64::from(digit - b'0'));
        let signed = if negative { -power } else { power };
        Ok(Self {
            exponent: self.exponent + signed,
            ..self
        })
    }

    /// The number times `factor * 10^power`, as an integer.
    pub(crate) fn scaled(
        self,
        factor: u128,
        power: i64,
        rounding: Rounding,
    ) -> Result<i64, DecimalError> {
        let product = self
            .mantissa
            .checked_mul(factor)
            .ok_or(DecimalError::Overflow)?;
        if product == 0 {
            return Ok(0);
        }
        let shift = self.exponent + power;
        let power_of_ten = u32::try_from(shift.unsigned_abs())
            .ok()
            .and_then(|digits| 10_u128.checked_pow(digits));
        let (quotient, exact) = match (shift < 0, power_of_ten) {
            (false, Some(power_of_ten)) => (
                product
                    .checked_mul(power_of_ten)
                    .ok_or(DecimalError::Overflow)?,
                true,
            ),
            (false, None) => return Err(DecimalError::Overflow),
            (true, Some(power_of_ten)) => (product / power_of_ten, product % power_of_ten == 0),
            (true, None) => (0, false),
        };
        let magnitude = match rounding {
            _ if exact => quotient,
            Rounding::Exact => return Err(DecimalError::Inexact),
            Rounding::Up => quotient + 1,
            Rounding::Floor => quotient + u128::from(self.negative),
        };
        let magnitude = i128::try_from(magnitude).map_err(|_| DecimalError::Overflow)?;
        let signed = if self.negative { -magnitude } else { magnitude };
        i64::try_from(signed).map_err(|_| DecimalError::Overflow)
    }
}

/// Splits a leading `+` or `-` off; true is negative.
pub(crate) fn split_sign(text: &str) -> (bool, &str) {
    match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    }
}
