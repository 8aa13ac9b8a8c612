//! Fair shares: their laws on random siblings, and KAI's worked examples.

use proptest::prelude::*;

use crate::share::{Claim, divide};

fn claim(quota: i64, weight: i64, request: i64) -> Claim {
    Claim { quota: Some(quota * 1000), weight: weight * 1000, request: request * 1000, priority: 100, ..Claim::default() }
}

fn units(total: i64, claims: &[Claim]) -> Vec<i64> {
    divide(total * 1000, claims).into_iter().map(|share| share / 1000).collect()
}

#[test]
fn what_is_deserved_first_then_by_weight() {
    assert_eq!(units(10, &[claim(2, 1, 10), claim(2, 1, 10)]), [5, 5]);
    assert_eq!(units(10, &[claim(2, 2, 10), claim(2, 1, 10)]), [6, 4]);
    // Who asks for less leaves the rest to the others.
    assert_eq!(units(10, &[claim(2, 1, 3), claim(2, 1, 10)]), [3, 7]);
    // No weight, nothing above the quota.
    assert_eq!(units(10, &[claim(2, 0, 10), claim(2, 1, 10)]), [2, 8]);
    // What is deserved is not cut, although there is less.
    assert_eq!(units(3, &[claim(2, 1, 9), claim(2, 1, 9)]), [2, 2]);
}

#[test]
fn a_higher_priority_is_served_above_the_quota_first() {
    let high = Claim { priority: 200, ..claim(1, 1, 7) };
    assert_eq!(units(10, &[claim(1, 5, 10), high]), [3, 7]);
}

#[test]
fn units_left_over_go_by_remainder_then_age_then_name() {
    let aged = |created, name: &str| Claim { created, name: name.into(), ..claim(0, 1, 9) };
    assert_eq!(units(8, &[aged(2, "a"), aged(1, "b"), aged(1, "c")]), [2, 3, 3]);
    assert_eq!(units(7, &[aged(1, "c"), aged(1, "b"), aged(2, "a")]), [2, 3, 2]);
}

#[test]
fn unlimited_quota_and_limits() {
    let all = Claim { quota: None, ..claim(0, 1, 6) };
    assert_eq!(units(10, &[all.clone(), claim(0, 1, 9)]), [6, 4]);
    assert_eq!(units(10, &[Claim { limit: Some(4000), ..all }, claim(0, 1, 9)]), [4, 6]);
}

fn siblings() -> impl Strategy<Value = Vec<Claim>> {
    let amount = || prop_oneof![3 => (0..20i64).prop_map(|n| n * 1000), 1 => 0..20_000i64];
    let one = (prop::option::weighted(0.8, amount()), prop::option::weighted(0.3, amount()), 0..4i64, 0..2i64, amount(), 0..2u64);
    prop::collection::vec(one, 1..6).prop_map(|rows| {
        let of = |(at, (quota, limit, weight, priority, request, created))| Claim {
            quota, limit, weight: weight * 500, priority, request, created: created as i64, name: format!("q{at}"),
        };
        rows.into_iter().enumerate().map(of).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn shares_are_within_bounds_and_leave_nothing(claims in siblings(), total in 0..60_000i64) {
        let shares = divide(total, &claims);
        let sum: i64 = shares.iter().sum();
        let wanted = |claim: &Claim| claim.limit.map_or(claim.request, |limit| claim.request.min(limit));
        let deserved = |claim: &Claim| claim.quota.map_or(wanted(claim), |quota| quota.min(wanted(claim)));
        let promised: i64 = claims.iter().map(deserved).sum();
        for (share, claim) in shares.iter().zip(&claims) {
            prop_assert!(deserved(claim) <= *share && *share <= wanted(claim));
        }
        prop_assert!(sum <= total.max(promised));
        if claims.iter().zip(&shares).any(|(claim, share)| claim.weight > 0 && *share < wanted(claim)) {
            prop_assert_eq!(sum, total.max(promised));
        }
    }

    #[test]
    fn a_larger_weight_never_lowers_a_share(claims in siblings(), total in 0..60_000i64, at in 0..5usize, more in 1..5i64) {
        let at = at % claims.len();
        let mut heavier = claims.clone();
        heavier[at].weight += more * 250;
        prop_assert!(divide(total, &claims)[at] <= divide(total, &heavier)[at]);
    }

    #[test]
    fn nobody_above_the_quota_has_more_per_weight_than_somebody_who_wants_more(claims in siblings(), total in 0..60_000i64) {
        let shares = divide(total, &claims);
        let wanted = |claim: &Claim| claim.limit.map_or(claim.request, |limit| claim.request.min(limit));
        let above = |at: usize| shares[at] - claims[at].quota.map_or(wanted(&claims[at]), |quota| quota.min(wanted(&claims[at])));
        for a in 0..claims.len() {
            for b in 0..claims.len() {
                if claims[a].priority == claims[b].priority && claims[b].weight > 0 && shares[b] < wanted(&claims[b]) && above(a) > 0 {
                    // Up to the unit that rounding moves.
                    prop_assert!((above(a) - 1000) * claims[b].weight <= (above(b) + 1000) * claims[a].weight);
                }
            }
        }
    }

    #[test]
    fn the_order_of_siblings_does_not_matter(claims in siblings(), total in 0..60_000i64) {
        let mut turned = claims.clone();
        turned.reverse();
        let mut shares = divide(total, &turned);
        shares.reverse();
        prop_assert_eq!(divide(total, &claims), shares);
    }
}
