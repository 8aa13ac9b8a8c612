//! Cordons and readiness.
//!
//! A cordon is read as plugins/nodeunschedulable of kube-scheduler reads it.
//! Readiness is not: that scheduler never looks at conditions, only at the taints
//! that the node lifecycle controller makes of them. Where a node carries such a
//! taint, taints decide here too; a node that is not ready and carries none
//! (before the controller saw it, or where none runs) is refused, so that no
//! gang is spent on a node that is down.

use super::taints::tolerates_key;
use crate::facts::{NodeFacts, ShapeFacts};
use crate::outcome::Rule;

/// The taint that a cordon adds, and its meaning for pods that tolerate it.
const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";
/// The taint of nodes that are not ready; daemons tolerate it.
const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";
/// The taint of nodes that are not heard of.
const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";

/// A cordoned node, or one that is not ready, refuses pods that do not tolerate it.
pub(super) fn refusal(node: &NodeFacts, shape: &ShapeFacts) -> Option<Rule> {
    if node.unschedulable && !tolerates_key(shape, CORDON_TAINT) {
        return Some(Rule::Cordoned);
    }
    // Once the cluster has put the taint, toleration of the taint decides.
    let tainted = node.taints.iter().any(|taint| taint.key == NOT_READY_TAINT || taint.key == UNREACHABLE_TAINT);
    (!node.ready && !tainted && !tolerates_key(shape, NOT_READY_TAINT)).then_some(Rule::NotReady)
}
