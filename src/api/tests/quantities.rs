//! Quantities: every suffix, every rounding, every error.

use berth_api::quantity::{
    QuantityError, parse_millis, parse_millis_floor, parse_units, parse_units_floor,
};

#[test]
fn millis() {
    for (text, expected) in [
        ("0", 0),
        ("1", 1000),
        ("+1", 1000),
        ("-1", -1000),
        ("100m", 100),
        ("1.5", 1500),
        (".5", 500),
        ("5.", 5000),
        ("0.0001", 1),
        ("1.0001", 1001),
        ("-1.0001", -1001),
        ("1u", 1),
        ("1n", 1),
        ("1000000n", 1),
        ("1000001n", 2),
        ("1500u", 2),
        ("1k", 1_000_000),
        ("1e3", 1_000_000),
        ("1E3", 1_000_000),
        ("1e-3", 1),
        ("1e-30", 1),
        ("1e+2", 100_000),
        ("9223372036854775807m", i64::MAX),
        ("-9223372036854775808m", i64::MIN),
        ("0e999", 0),
        ("000.100", 100),
        ("9223372036854775.807", i64::MAX),
    ] {
        assert_eq!(parse_millis(text), Ok(expected), "{text}");
    }
}

#[test]
fn units() {
    for (text, up, floor) in [
        ("1Ki", 1 << 10, 1 << 10),
        ("1Mi", 1 << 20, 1 << 20),
        ("1Gi", 1 << 30, 1 << 30),
        ("1Ti", 1 << 40, 1 << 40),
        ("1Pi", 1 << 50, 1 << 50),
        ("1Ei", 1 << 60, 1 << 60),
        ("7Ei", 7 << 60, 7 << 60),
        ("1.5Gi", 1_610_612_736, 1_610_612_736),
        ("0.1Ki", 103, 102),
        ("-0.1Ki", -103, -103),
        ("1k", 1_000, 1_000),
        ("1M", 1_000_000, 1_000_000),
        ("1G", 1_000_000_000, 1_000_000_000),
        ("1T", 1_000_000_000_000, 1_000_000_000_000),
        ("1P", 1_000_000_000_000_000, 1_000_000_000_000_000),
        ("9E", 9_000_000_000_000_000_000, 9_000_000_000_000_000_000),
        ("1e0", 1, 1),
        ("12345e-2", 124, 123),
        ("100m", 1, 0),
        ("1500m", 2, 1),
        ("-1500m", -2, -2),
        ("1u", 1, 0),
        ("1n", 1, 0),
        ("2.0", 2, 2),
        ("1E", 10_i64.pow(18), 10_i64.pow(18)),
        ("9223372036854775807", i64::MAX, i64::MAX),
        (
            "1000000000000000000000000000n",
            10_i64.pow(18),
            10_i64.pow(18),
        ),
    ] {
        assert_eq!(parse_units(text), Ok(up), "{text}");
        assert_eq!(parse_units_floor(text), Ok(floor), "{text} floor");
    }
    assert_eq!(parse_millis_floor("1.9999"), Ok(1999));
}

#[test]
fn out_of_range() {
    for text in [
        "1e999",
        "1e99999999999999",
        "9223372036854775808",
        "-9223372036854775809",
        "8Ei",
        "10E",
        "99999999999999999999Ei",
    ] {
        let error = parse_units(text).unwrap_err();
        assert!(
            matches!(error, QuantityError::OutOfRange { .. }),
            "{text}: {error:?}"
        );
        let message = error.to_string();
        assert!(
            message.contains(text) && message.contains("9223372036854775807"),
            "{message}"
        );
    }
    let message = parse_millis("9223372036854776").unwrap_err().to_string();
    assert_eq!(
        message,
        "\"9223372036854776\" is out of range; allowed is up to 9223372036854775807m either way"
    );
}

#[test]
fn malformed() {
    assert_eq!(parse_units(""), Err(QuantityError::Empty));
    for text in [
        "abc", "1.5.2", "-", "+", ".", "--1", "+-1", " 1", "Gi", "..", "é", "NaN", "-.", "1..2",
    ] {
        let error = parse_units(text).unwrap_err();
        assert!(
            matches!(error, QuantityError::Number { .. }),
            "{text}: {error:?}"
        );
        assert!(error.to_string().contains(text), "{error}");
    }
    for text in [
        "1Kii",
        "1 ",
        "1K",
        "1ki",
        "1e",
        "1e+",
        "1eX",
        "1E+-3",
        "1g",
        "1_000",
        "1,5",
        "0x10",
        "1é",
        "1mm",
        "1e1.5",
        "1e-9999999999",
    ] {
        let error = parse_units(text).unwrap_err();
        assert!(
            matches!(error, QuantityError::Suffix { .. }),
            "{text}: {error:?}"
        );
        assert!(error.to_string().contains(text), "{error}");
    }
    assert!(matches!(
        parse_units("1.23456789012345678901"),
        Err(QuantityError::Digits { .. })
    ));
    assert!(
        parse_units(&"x".repeat(10_000))
            .unwrap_err()
            .to_string()
            .len()
            < 300
    );
}
