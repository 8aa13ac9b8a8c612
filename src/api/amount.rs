//! A JSON number that stays decimal: queue shares and scores, read and compared without float arithmetic.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::decimal::{Decimal, DecimalError, Rounding};

/// A JSON number, kept as it was written. `type: number` in the schema.
///
/// A number with up to 15 significant digits is exact; that is more than three decimals of any cluster.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(transparent)]
pub struct Amount(serde_json::Number);

/// A quota or limit: `-1` in a manifest is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// No bound (`-1`).
    Unlimited,
    /// At most so many thousandths of the field's unit.
    Millis(i64),
}

/// Why a number can't be used.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
pub enum AmountError {
    /// More than three decimals.
    #[error("{0} has more than three decimals; allowed are thousandths")]
    TooFine(String),
    /// Beyond 64 bits of thousandths.
    #[error("{0} is out of range; allowed is up to 9223372036854775.807 either way")]
    OutOfRange(String),
    /// Negative, and not the -1 that means unlimited.
    #[error("{0} is negative; allowed are 0 or more, and -1 for unlimited")]
    Negative(String),
}

impl Amount {
    /// An amount of `millis` thousandths.
    pub fn from_millis(millis: i64) -> Self {
        if millis % 1000 == 0 {
            return Self((millis / 1000).into());
        }
        let sign = if millis < 0 { "-" } else { "" };
        let magnitude = millis.unsigned_abs();
        let text = format!("{sign}{}.{:03}", magnitude / 1000, magnitude % 1000);
        let number = serde_json::from_str(&text);
        Self(number.unwrap_or_else(|_| (millis / 1000).into()))
    }

    /// The amount in thousandths, exactly.
    pub fn to_millis(&self) -> Result<i64, AmountError> {
        let text = self.0.to_string();
        let parsed =
            Decimal::parse(&text).and_then(|decimal| decimal.scaled(1, 3, Rounding::Exact));
        parsed.map_err(|error| match error {
            DecimalError::Inexact => AmountError::TooFine(text),
            DecimalError::Overflow | DecimalError::Malformed => AmountError::OutOfRange(text),
        })
    }

    /// The amount as a quota or limit: exactly -1 is unlimited, other negative amounts are errors.
    pub fn to_bound(&self) -> Result<Bound, AmountError> {
        match self.to_millis()? {
            -1000 => Ok(Bound::Unlimited),
            millis if millis < 0 => Err(AmountError::Negative(self.to_string())),
            millis => Ok(Bound::Millis(millis)),
        }
    }
}

impl Default for Amount {
    fn default() -> Self {
        Self(0.into())
    }
}

impl From<i64> for Amount {
    fn from(units: i64) -> Self {
        Self(units.into())
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "number"})
    }
}
