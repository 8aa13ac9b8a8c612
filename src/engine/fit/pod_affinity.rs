//! Affinity and anti-affinity between pods, as plugins/interpodaffinity/filtering.go of
//! kube-scheduler has them. Every pod with a place counts, terminating ones and those of
//! other schedulers included.

use super::tallies::{Mark, Tallies};
use crate::ids::NodeIdx;
use crate::outcome::Rule;
use crate::rooms::Shape;

/// Matching pods beyond this many in a domain make it no dearer or cheaper.
const MOST_COUNTED: i64 = 20;

/// Anti-affinity, of the shape and of the pods that are there: more pods only refuse more.
pub(crate) fn repelled(tallies: &Tallies, node: NodeIdx, shape: &Shape) -> Option<Rule> {
    let own = shape.terms.anti.iter().enumerate().find(|(_, term)| tallies.near(Mark::Member(**term), node) > 0);
    if let Some((at, _)) = own {
        return Some(Rule::PodAntiAffinity(shape.facts.pod_anti_affinity[at].topology_key.clone()));
    }
    let theirs = shape.terms.member_of.iter().any(|term| tallies.near(Mark::Avoids(*term), node) > 0);
    theirs.then_some(Rule::AntiAffinityOfOthers)
}

/// One copy in a domain where the shape avoids its own kind.
pub(crate) fn cap(tallies: &Tallies, node: NodeIdx, shape: &Shape) -> u32 {
    let own = |term| shape.terms.member_of.contains(term) && tallies.value(*term, node).is_some();
    if shape.terms.anti.iter().any(own) { 1 } else { u32::MAX }
}

/// Required affinity: every term has a pod in the node's domain. The first pod of a group
/// that matches itself may go anywhere while no pod matches at all.
pub(crate) fn unattracted(tallies: &Tallies, node: NodeIdx, shape: &Shape) -> Option<Rule> {
    let terms = &shape.terms.affinity;
    let key = |at: usize| shape.facts.pod_affinity[at].topology_key.clone();
    if let Some(at) = terms.iter().position(|term| tallies.value(*term, node).is_none()) {
        return Some(Rule::MissingLabel(key(at)));
    }
    let at = terms.iter().position(|term| tallies.near(Mark::Member(*term), node) == 0)?;
    let nobody = terms.iter().all(|term| tallies.total(Mark::Member(*term)) == 0);
    let matches_itself = terms.iter().all(|term| shape.terms.member_of.contains(term));
    (!(nobody && matches_itself)).then(|| Rule::PodAffinity(key(at)))
}

/// Preferred affinity of the shape and of the pods that are there: less is better.
pub(crate) fn cost(tallies: &Tallies, node: NodeIdx, shape: &Shape) -> i64 {
    let own = shape.terms.preferred.iter().map(|(weight, term)| {
        i64::from((*weight).clamp(-100, 100)) * tallies.near(Mark::Member(*term), node).min(MOST_COUNTED)
    });
    let bound = 100 * MOST_COUNTED;
    let theirs = shape.terms.member_of.iter().map(|term| tallies.near(Mark::Likes(*term), node).clamp(-bound, bound));
    -own.chain(theirs).sum::<i64>()
}
