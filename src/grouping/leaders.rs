//! Which pods go first within their gang: the masters, launchers and heads that the others talk to.
//!
//! They take the first rank, and of an elastic gang that has room for few they are among those few.

use berth_api::keys;
use k8s_openapi::api::core::v1::Pod;

/// Labels of pods that go first, with the values that say so, in any case.
const LEADERS: [(&str, &[&str]); 4] = [
    (keys::TRAINING_JOB_ROLE, &["master", "launcher"]),
    (keys::TRAINING_REPLICA_TYPE, &["master", "launcher"]),
    (keys::LWS_WORKER_INDEX, &["0"]),
    (keys::RAY_NODE_TYPE, &["head"]),
];

/// Whether the pod goes first, by its labels: also in a hand-written group.
#[must_use]
pub fn leads(pod: &Pod) -> bool {
    let Some(labels) = &pod.metadata.labels else { return false };
    LEADERS.iter().any(|(key, words)| {
        labels.get(*key).is_some_and(|value| words.iter().any(|word| word.eq_ignore_ascii_case(value)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_say_who_goes_first() {
        for (key, value, expected) in [
            ("training.kubeflow.org/job-role", "master", true),
            ("training.kubeflow.org/replica-type", "Launcher", true),
            ("training.kubeflow.org/replica-type", "worker", false),
            ("leaderworkerset.sigs.k8s.io/worker-index", "0", true),
            ("leaderworkerset.sigs.k8s.io/worker-index", "10", false),
            ("ray.io/node-type", "head", true),
            ("ray.io/node-type", "worker", false),
            ("role", "master", false),
        ] {
            let mut pod = Pod::default();
            assert!(!leads(&pod));
            pod.metadata.labels = Some([(key.to_owned(), value.to_owned())].into());
            assert_eq!(leads(&pod), expected, "{key}={value}");
        }
    }
}
