//! What changes for work that KAI Scheduler has placed so far: the differences of docs/compat.md, object by object.
//!
//! A difference that no object shows, because it is in how all of them are treated, is one of [`EVERYWHERE`].

mod cluster;
mod keys;
mod kinds;
pub mod leftovers;
pub mod settings;
mod sharing;
mod work;

use super::{Finding, Severity};
use crate::simulate::Options;
use crate::simulate::input::Item;
use work::Work;

/// Differences that concern everything and no object in particular, each in a sentence.
pub const EVERYWHERE: [(&str, &str); 6] = [
    ("KaiDiffIdentity", "groups are keyed by UID as well as by name"),
    ("KaiDiffOwnerForbidden", "a pod whose owner may not be read waits, and does not start alone"),
    ("KaiDiffStaleness", "a gang is evicted as stale only after it ran whole"),
    ("KaiDiffVictims", "the fewest running gangs are evicted, where the topology asks for room"),
    ("KaiDiffRepair", "a gang that ran whole gets back each pod that finds a place"),
    ("KaiDiffConstraintRemoval", "a topology annotation that is taken away takes its constraint along"),
];

/// Finds in what somebody wrote: the field, and what differs.
type OfWork = fn(&Work<'_>) -> Option<(String, String)>;

/// Differences that the keys of any workload show.
const OF_KEYS: [(&str, OfWork); 6] = [
    ("KaiDiffTemplateAnnotations", keys::template_annotations),
    ("KaiDiffRoleTemplates", keys::role_templates),
    ("KaiDiffLevelWithoutTopology", keys::level_without_topology),
    ("KaiDiffSegmentKinds", keys::segment_kinds),
    ("KaiDiffSegmentSizeElsewhere", keys::segment_size_elsewhere),
    ("KaiDiffAutomaticPreferred", keys::automatic_preferred),
];

/// Differences that belong to a kind.
const OF_KINDS: [(&str, OfWork); 13] = [
    ("KaiDiffLwsSegmentSize", kinds::lws_segment_size),
    ("KaiDiffCronJobMinimum", kinds::cron_job_minimum),
    ("KaiDiffElasticSegments", kinds::elastic_segments),
    ("KaiDiffReplicasDefault", kinds::replicas_default),
    ("KaiDiffJobSetMinimum", kinds::job_set_minimum),
    ("KaiDiffExclusiveJobSet", kinds::exclusive_job_set),
    ("KaiDiffExclusiveLws", kinds::exclusive_lws),
    ("KaiDiffOrderedJobSet", kinds::ordered_job_set),
    ("KaiDiffAwaitedPods", kinds::awaited_pods),
    ("KaiDiffRaySubmitter", kinds::ray_submitter),
    ("KaiDiffKnative", kinds::knative),
    ("KaiDiffGrove", kinds::grove),
    ("KaiDiffKarta", kinds::karta),
];

/// Differences that need more than the one object.
const OF_CLUSTER: [&str; 4] = ["KaiDiffUnlabelledNodes", "KaiDiffPools", "KaiDiffRayPriority", "KaiDiffEviction"];

/// Differences that `--compat kai` does not turn off.
pub const REMAIN: [&str; 17] = [
    "KaiDiffIdentity", "KaiDiffReplicasDefault", "KaiDiffRayPriority", "KaiDiffOwnerForbidden", "KaiDiffStaleness", "KaiDiffEviction",
    "KaiDiffVictims", "KaiDiffRepair", "KaiDiffGrove", "KaiDiffPools", "KaiDiffKarta", "KaiDiffJobSetMinimum", "KaiDiffExclusiveJobSet",
    "KaiDiffExclusiveLws", "KaiDiffRaySubmitter", "KaiDiffKnative", "KaiDiffConstraintRemoval",
];

/// Every code, those of [`EVERYWHERE`] included.
#[must_use]
pub fn codes() -> Vec<&'static str> {
    let everywhere = EVERYWHERE.iter().map(|(code, _)| *code);
    everywhere.chain(OF_KEYS.iter().chain(&OF_KINDS).map(|(code, _)| *code)).chain(OF_CLUSTER).collect()
}

/// What differs for these objects, and what of them is not supported yet.
#[must_use]
pub fn differences(items: &[Item], options: &Options) -> Vec<Finding> {
    let mut findings = Vec::new();
    for work in work::all(items) {
        for (code, find) in OF_KEYS.iter().chain(&OF_KINDS) {
            if let Some((field, message)) = find(&work) {
                findings.push(work.finding(code, &field, message));
            }
        }
        sharing::check(&work, options, &mut findings);
    }
    cluster::check(items, options, &mut findings);
    findings.retain(|finding| !options.compat_kai || finding.severity == Severity::Error || REMAIN.contains(&finding.code));
    findings.sort();
    findings.dedup();
    findings
}
