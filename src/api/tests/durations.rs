//! Go durations.

use berth_api::duration::{DurationError, parse_duration_millis};

#[test]
fn well_formed() {
    for (text, millis) in [
        ("0", 0),
        ("-0", 0),
        ("0s", 0),
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("-1s", -1_000),
        ("+1s", 1_000),
        ("1.5h", 5_400_000),
        (".5s", 500),
        ("1.s", 1_000),
        ("100ms", 100),
        ("1m1ms", 60_001),
        ("1000us", 1),
        ("1000µs", 1),
        ("1000μs", 1),
        ("1000000ns", 1),
        ("500us500us", 1),
        ("2562047h", 9_223_369_200_000),
        ("1h1h", 7_200_000),
        ("-1h30m", -5_400_000),
    ] {
        assert_eq!(parse_duration_millis(text), Ok(millis), "{text}");
    }
}

#[test]
fn malformed() {
    assert_eq!(parse_duration_millis(""), Err(DurationError::Empty));
    assert_eq!(parse_duration_millis("-"), Err(DurationError::Empty));
    for text in ["abc", "1.5.2s", "s", "1h ", "1s-1s", " 1s", "--1s", ".s"] {
        assert!(
            matches!(
                parse_duration_millis(text),
                Err(DurationError::Number(_) | DurationError::Unit(_))
            ),
            "{text}"
        );
    }
    for text in ["1", "1d", "5 s", "1S", "00", "1h30"] {
        assert_eq!(
            parse_duration_millis(text),
            Err(DurationError::Unit(text.to_owned()))
        );
    }
    for text in ["1ns", "1.5ms", "1us", "0.1ns"] {
        assert_eq!(
            parse_duration_millis(text),
            Err(DurationError::TooFine(text.to_owned()))
        );
    }
    for text in ["2562048h", "99999999999999999999h", "2562047h2562047h"] {
        assert_eq!(
            parse_duration_millis(text),
            Err(DurationError::OutOfRange(text.to_owned()))
        );
    }
}
