//! Names hashed, the same name always to the same word, so that everything that refers to it still does.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use serde_json::{Map, Value};

/// Domains of keys that say nothing about their owner; names below them stay, their values do not.
const PUBLIC: [&str; 16] = [
    "kubernetes.io", "k8s.io", "x-k8s.io", "kai.scheduler", "run.ai", "berth.scheduler", "nvidia.com", "amd.com", "intel.com",
    "kubeflow.org", "ray.io", "volcano.sh", "grove.io", "scheduling.run.ai", "sigs.k8s.io", "csi.k8s.io",
];

/// Keys whose text is one of a fixed set, a quantity or a moment.
const PLAIN: [&str; 36] = [
    "apiVersion", "kind", "phase", "operator", "effect", "type", "status", "restartPolicy", "completionMode", "schedulerName",
    "preemptionPolicy", "whenUnsatisfiable", "nodeAffinityPolicy", "nodeTaintsPolicy", "protocol", "volumeMode", "volumeBindingMode",
    "accessModes", "creationTimestamp", "deletionTimestamp", "startTime", "cleanPodPolicy", "startupPolicy", "startupPolicyOrder",
    "successPolicy", "reclaimPolicy", "minRuntime", "preemptMinRuntime", "reclaimMinRuntime", "stalenessGracePeriod", "preemptibility",
    "podReplacementPolicy", "concurrencyPolicy", "controllerKind", "fit", "restartStrategy",
];

/// Keys whose value maps resource names to quantities.
const AMOUNTS: [&str; 7] = ["requests", "limits", "allocatable", "capacity", "overhead", "podFixed", "hard"];

/// Words that mean something to Kubernetes or Berth itself.
const KNOWN: [&str; 16] = [
    "default", "default-queue", "kube-system", "preemptible", "non-preemptible", "true", "false", "system-node-critical",
    "system-cluster-critical", "Pod", "Job", "build", "train", "inference", "kai", "compact",
];

/// Hashes names; the key is drawn anew for each one, so that guesses can't be checked against another file.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    key: RandomState,
}

impl Redactor {
    /// One with a key of its own.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A stripped object with every name hashed.
    #[must_use]
    pub fn redacted(&self, object: &Value) -> Value {
        self.value("", object)
    }

    fn value(&self, key: &str, value: &Value) -> Value {
        match value {
            Value::String(text) if PLAIN.contains(&key) => Value::String(self.plain(text)),
            Value::String(text) => Value::String(self.word(text)),
            Value::Array(list) => Value::Array(list.iter().map(|value| self.value(key, value)).collect()),
            Value::Object(map) if AMOUNTS.contains(&key) => {
                let amount = |value: &Value| match value {
                    Value::String(text) if berth_api::parse_millis(text).is_err() && berth_api::parse_units(text).is_err() => Value::String("0".to_owned()),
                    other => other.clone(),
                };
                Value::Object(map.iter().map(|(name, value)| (self.name(name), amount(value))).collect())
            }
            Value::Object(map) => {
                let hashes_keys = ["labels", "annotations", "matchLabels", "nodeSelector", "parameters"].contains(&key);
                let entries = map.iter().map(|(name, value)| {
                    let shown = if hashes_keys { self.name(name) } else { name.clone() };
                    // Below labels no key is one of ours: every value is a name.
                    let inner = if hashes_keys { "" } else { name.as_str() };
                    (shown, self.value(inner, value))
                });
                Value::Object(entries.collect::<Map<String, Value>>())
            }
            other => other.clone(),
        }
    }

    /// Text of a fixed set: one word of letters, digits and a few signs, or a hash.
    fn plain(&self, text: &str) -> String {
        let fine = text.len() <= 64 && text.chars().all(|c| c.is_ascii_alphanumeric() || "./:-+".contains(c));
        if fine { text.to_owned() } else { self.word(text) }
    }

    /// A key or resource name: what stands below a public domain stays.
    fn name(&self, name: &str) -> String {
        let plain = ["cpu", "memory", "ephemeral-storage", "pods", "storage", "gpu", "user"].contains(&name) || name.starts_with("hugepages-");
        let public = name.split_once('/').is_some_and(|(domain, _)| {
            PUBLIC.iter().any(|known| domain == *known || domain.ends_with(&format!(".{known}")))
        });
        let bare = ["pod-group-name", "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "mps"].contains(&name);
        if plain || public || bare { name.to_owned() } else { self.word(name) }
    }

    /// A name: numbers, and numbers at its end, stay.
    fn word(&self, text: &str) -> String {
        if text.is_empty() || KNOWN.contains(&text) || text.bytes().all(|byte| byte.is_ascii_digit()) || self.is_public(text) {
            return text.to_owned();
        }
        if is_duration(text) {
            return text.to_owned();
        }
        // Annotations may hold JSON, or a list.
        if let Ok(inner @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str::<Value>(text) {
            return self.value("", &inner).to_string();
        }
        if text.contains(',') {
            return text.split(',').map(|part| self.word(part.trim())).collect::<Vec<_>>().join(",");
        }
        if let Some((stem, number)) = text.rsplit_once('-')
            && !stem.is_empty()
            && number.len() <= 4
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
        {
            return format!("{}-{number}", self.word(stem));
        }
        let hash = self.key.hash_one(text);
        format!("x{:012x}", hash & 0xffff_ffff_ffff)
    }

    /// A level's label or a key that is spoken of by name.
    fn is_public(&self, text: &str) -> bool {
        text.contains('/') && self.is_key(text)
    }

    fn is_key(&self, text: &str) -> bool {
        let (domain, rest) = text.split_once('/').unwrap_or(("", text));
        // Only keys that are well known as a whole: below a public domain anything can stand.
        matches!(
            (domain, rest),
            ("kubernetes.io", "hostname" | "os" | "arch")
                | ("topology.kubernetes.io", "region" | "zone")
                | ("node.kubernetes.io", "instance-type" | "not-ready" | "unreachable" | "unschedulable")
                | ("nvidia.com", "gpu")
        )
    }
}

/// Such as `30s` or `1h30m`.
fn is_duration(text: &str) -> bool {
    let units = text.trim_start_matches('-').split(|c: char| c.is_ascii_digit()).filter(|unit| !unit.is_empty());
    text.bytes().any(|byte| byte.is_ascii_digit()) && text.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit()) && units.into_iter().all(|unit| ["h", "m", "s", "ms"].contains(&unit))
}
