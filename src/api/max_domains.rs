//! Limits on the domains that a gang uses (`rack=2`, `block=1,rack=4`), as the annotation `berth.scheduler/max-domains` has
//! them.

/// What is allowed, as a phrase.
pub const ALLOWED: &str = "levels with the most domains of each, such as rack=2 or block=1,rack=4: each level once, from 1 on";

/// Why a text can't be used as limits. The message names the part and what is allowed.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
pub enum MaxDomainsError {
    /// A part without `=`, or with nothing before it.
    #[error("\"{0}\" names no level and number; allowed are {ALLOWED}")]
    Part(String),
    /// The number is none, or 0.
    #[error("\"{0}\" is no number of domains; allowed are {ALLOWED}")]
    Number(String),
    /// A level that stands there twice.
    #[error("\"{0}\" is limited twice; allowed are {ALLOWED}")]
    Twice(String),
}

/// Levels (label or alias) with the most domains of each, in the order in which they stand.
///
/// # Errors
/// The first part that can't be used.
pub fn parse_max_domains(text: &str) -> Result<Vec<(String, u32)>, MaxDomainsError> {
    let mut limits: Vec<(String, u32)> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (level, number) = part.split_once('=').ok_or_else(|| MaxDomainsError::Part(part.to_owned()))?;
        let (level, number) = (level.trim(), number.trim());
        if level.is_empty() {
            return Err(MaxDomainsError::Part(part.to_owned()));
        }
        let is_plain = number.bytes().all(|digit| digit.is_ascii_digit());
        let most = number.parse().ok().filter(|most| is_plain && *most > 0);
        let most = most.ok_or_else(|| MaxDomainsError::Number(number.to_owned()))?;
        if limits.iter().any(|(other, _)| other == level) {
            return Err(MaxDomainsError::Twice(level.to_owned()));
        }
        limits.push((level.to_owned(), most));
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_numbers_are_read_and_mistakes_named() {
        let read = |text| parse_max_domains(text).map(|all| all.into_iter().map(|(level, most)| format!("{level}:{most}")).collect::<Vec<_>>().join(" "));
        assert_eq!(read("rack=2").unwrap(), "rack:2");
        assert_eq!(read(" example.com/block = 1 , example.com/rack=40").unwrap(), "example.com/block:1 example.com/rack:40");
        for (wrong, part) in [("", "\"\""), ("rack", "\"rack\""), ("=2", "\"=2\""), ("rack=2,", "\"\"")] {
            assert!(matches!(parse_max_domains(wrong), Err(MaxDomainsError::Part(_))), "{wrong}");
            assert!(read(wrong).unwrap_err().to_string().starts_with(part), "{wrong}");
        }
        for wrong in ["rack=0", "rack=-1", "rack=+1", "rack=two", "rack=", "rack=4294967296", "rack=1=2"] {
            assert!(matches!(parse_max_domains(wrong), Err(MaxDomainsError::Number(_))), "{wrong}");
        }
        assert_eq!(parse_max_domains("rack=1,rack=2"), Err(MaxDomainsError::Twice("rack".to_owned())));
    }
}
