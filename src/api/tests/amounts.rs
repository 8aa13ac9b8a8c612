//! JSON numbers as exact thousandths.

use berth_api::amount::{Amount, AmountError, Bound};

fn amount(json: &str) -> Amount {
    serde_json::from_str(json).unwrap()
}

#[test]
fn thousandths() {
    for (json, millis) in [
        ("0", 0),
        ("1", 1000),
        ("-1", -1000),
        ("-1.0", -1000),
        ("0.5", 500),
        ("0.1", 100),
        ("0.001", 1),
        ("1e3", 1_000_000),
        ("2.50", 2500),
        ("8000000", 8_000_000_000),
        ("9007199254740993", 9_007_199_254_740_993_000),
        ("1e15", 1_000_000_000_000_000_000),
        ("0.3", 300),
        ("1.005", 1005),
    ] {
        assert_eq!(amount(json).to_millis(), Ok(millis), "{json}");
    }
    assert!(matches!(
        amount("0.0001").to_millis(),
        Err(AmountError::TooFine(_))
    ));
    assert!(matches!(
        amount("1e300").to_millis(),
        Err(AmountError::OutOfRange(_))
    ));
    assert!(matches!(
        amount("9223372036854775807").to_millis(),
        Err(AmountError::OutOfRange(_))
    ));
}

#[test]
fn bounds() {
    assert_eq!(amount("-1").to_bound(), Ok(Bound::Unlimited));
    assert_eq!(amount("-1.0").to_bound(), Ok(Bound::Unlimited));
    assert_eq!(amount("2.5").to_bound(), Ok(Bound::Millis(2500)));
    assert!(matches!(
        amount("-2").to_bound(),
        Err(AmountError::Negative(_))
    ));
    assert!(matches!(
        amount("-0.5").to_bound(),
        Err(AmountError::Negative(_))
    ));
}

#[test]
fn written_as_read() {
    for millis in [0, 1, 950, 1000, -1, -1500, 333, 1_000_000] {
        let written = Amount::from_millis(millis);
        assert_eq!(
            amount(&serde_json::to_string(&written).unwrap()).to_millis(),
            Ok(millis)
        );
    }
    assert_eq!(
        serde_json::to_string(&Amount::from_millis(950)).unwrap(),
        "0.95"
    );
    assert_eq!(serde_json::to_string(&amount("-1")).unwrap(), "-1");
    let yaml: Vec<Amount> = serde_saphyr::from_str("[-1, 0.5, 3, 1e3]").unwrap();
    let millis: Vec<i64> = yaml
        .iter()
        .map(|amount| amount.to_millis().unwrap())
        .collect();
    assert_eq!(millis, [-1000, 500, 3000, 1_000_000]);
}
