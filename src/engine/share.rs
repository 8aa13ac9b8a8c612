//! Fair shares: one resource divided among sibling queues, in whole units and exactly.
//!
//! The rule is KAI Scheduler's (proportion): everybody gets what they deserve and ask for; the rest goes by queue
//! priority, and within a priority by weight to those who ask for more, until nothing or nobody is left. Where KAI goes in
//! rounds of rounded offers, whose end depends on their path, the same fixed point is computed here: offers that cover
//! what is asked are given first, the others are cut to whole units, and units left over go by largest remainder, then
//! age, then name. So a larger weight never lowers a share.

use crate::facts::Millis;

/// One unit (a GPU, a milli-core, a megabyte) in the thousandths that amounts are counted in.
const UNIT: i64 = 1000;

/// A queue among its siblings. Amounts in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    /// What it deserves; `None` is everything.
    pub quota: Option<i64>,
    /// The most it may have; `None` is no limit.
    pub limit: Option<i64>,
    /// Weight above the quota, in thousandths; 0 gets nothing there.
    pub weight: i64,
    /// Larger is served first above the quota.
    pub priority: i64,
    /// What its pods have and ask for together.
    pub request: i64,
    /// Older before younger.
    pub created: Millis,
    /// Last tie.
    pub name: String,
}

impl Claim {
    /// What it asks for and may have.
    fn wanted(&self) -> i64 {
        self.limit.map_or(self.request, |limit| self.request.min(limit)).max(0)
    }

    fn deserved(&self) -> i64 {
        self.quota.map_or(self.wanted(), |quota| self.wanted().min(quota.max(0)))
    }
}

/// The share of each. Their sum passes `total` only where what is deserved does by itself.
pub(crate) fn divide(total: i64, claims: &[Claim]) -> Vec<i64> {
    let mut shares: Vec<i64> = claims.iter().map(Claim::deserved).collect();
    let mut rest = shares.iter().fold(total, |rest, share| rest.saturating_sub(*share)).max(0);
    let mut priorities: Vec<i64> = claims.iter().map(|claim| claim.priority).collect();
    priorities.sort_unstable_by(|a, b| b.cmp(a));
    priorities.dedup();
    for priority in priorities {
        let bucket: Vec<usize> = (0..claims.len())
            .filter(|at| claims[*at].priority == priority && claims[*at].weight > 0 && shares[*at] < claims[*at].wanted())
            .collect();
        rest = divide_rest(rest, claims, bucket, &mut shares);
    }
    shares
}

/// Divides what is above the quotas among queues of one priority; gives what is left.
fn divide_rest(mut rest: i64, claims: &[Claim], mut open: Vec<usize>, shares: &mut [i64]) -> i64 {
    // Who is offered all that is missing gets that, and the others' offers grow.
    loop {
        let weights: i128 = open.iter().map(|at| i128::from(claims[*at].weight)).sum();
        let (given, still): (Vec<usize>, Vec<usize>) = open.iter().partition(|at| {
            let missing = i128::from(claims[**at].wanted() - shares[**at]);
            missing * weights <= i128::from(rest) * i128::from(claims[**at].weight)
        });
        if given.is_empty() {
            break;
        }
        for at in given {
            rest -= claims[at].wanted() - shares[at];
            shares[at] = claims[at].wanted();
        }
        open = still;
    }
    let weights: i128 = open.iter().map(|at| i128::from(claims[*at].weight)).sum();
    if weights == 0 {
        return rest;
    }
    let offers: Vec<(usize, i64, i128)> = open
        .iter()
        .map(|at| {
            let offer = i128::from(rest) * i128::from(claims[*at].weight);
            let unit = weights * i128::from(UNIT);
            let whole = i64::try_from(offer / unit).unwrap_or(i64::MAX).saturating_mul(UNIT);
            (*at, whole, offer % unit)
        })
        .collect();
    for (at, whole, _) in &offers {
        shares[*at] += whole;
        rest -= whole;
    }
    let mut by_remainder = offers;
    by_remainder.sort_by(|(a, _, ours), (b, _, theirs)| {
        let age = |at: &usize| (claims[*at].created, claims[*at].name.clone());
        theirs.cmp(ours).then_with(|| age(a).cmp(&age(b)))
    });
    // Whoever misses less than a unit leaves some of it to those behind.
    while rest > 0 && open.iter().any(|at| shares[*at] < claims[*at].wanted()) {
        for (at, _, _) in &by_remainder {
            let more = UNIT.min(rest).min(claims[*at].wanted() - shares[*at]);
            shares[*at] += more;
            rest -= more;
        }
    }
    rest
}
