//! What Grove's operator does while pods are scheduled: a scaled PodGang is gated until its base gang runs.

use std::collections::BTreeMap;

use berth_api::keys;
use berth_engine::facts::ObjectKey;
use serde_json::Value;

use super::{Cluster, Stored};
use crate::simulate::objects::{ObjectId, text};

impl Cluster {
    /// Takes the gate off the pods of each scaled gang whose base gang has its minimum bound, PodClique by PodClique.
    /// True when there were any.
    pub(super) fn release_scaled_gangs(&mut self) -> bool {
        let mut known: BTreeMap<ObjectKey, bool> = BTreeMap::new();
        let gated: Vec<(ObjectId, ObjectKey)> =
            self.pods().filter_map(|(id, stored)| Some((id.clone(), base_of(id, stored)?))).collect();
        let mut released = false;
        for (id, base) in gated {
            let runs = *known.entry(base).or_insert_with_key(|base| self.runs(base));
            if !runs {
                continue;
            }
            let spec = self.objects.get_mut(&id).and_then(|stored| stored.value.get_mut("spec"));
            if let Some(Value::Array(gates)) = spec.and_then(|spec| spec.get_mut("schedulingGates")) {
                gates.retain(|gate| text(gate, "/name") != keys::GROVE_GATE);
                released = true;
                self.feed_pod(&id);
            }
        }
        released
    }

    /// Whether every PodClique of a PodGang has its minimum bound.
    fn runs(&self, gang: &ObjectKey) -> bool {
        let mut group = String::new();
        let mut n_bound: BTreeMap<String, i32> = BTreeMap::new();
        let is_member = |id: &ObjectId, stored: &Stored| {
            id.namespace == gang.namespace && label(&stored.value, keys::GROVE_POD_GANG) == gang.name
        };
        for (_, stored) in self.pods().filter(|(id, stored)| is_member(id, stored)) {
            let (name, leaf) = self.membership(&stored.uid);
            group = name;
            let is_bound = !text(&stored.value, "/spec/nodeName").is_empty();
            *n_bound.entry(leaf).or_default() += i32::from(is_bound);
        }
        let Some(group) = self.derived.get(&ObjectKey::new(gang.namespace.clone(), group)) else { return false };
        let has_minimum = |name: &str, least: i32| least <= n_bound.get(name).copied().unwrap_or(0);
        group.spec.sub_groups.iter().all(|leaf| leaf.min_member.is_none_or(|least| has_minimum(&leaf.name, least)))
    }
}

/// The base gang of a pod behind Grove's gate.
fn base_of(id: &ObjectId, stored: &Stored) -> Option<ObjectKey> {
    let gates = stored.value.pointer("/spec/schedulingGates").and_then(Value::as_array)?;
    let base = label(&stored.value, keys::GROVE_BASE_POD_GANG);
    let is_gated = gates.iter().any(|gate| text(gate, "/name") == keys::GROVE_GATE);
    (is_gated && !base.is_empty()).then(|| ObjectKey::new(id.namespace.clone(), base))
}

fn label<'a>(pod: &'a Value, key: &str) -> &'a str {
    let labels = pod.pointer("/metadata/labels");
    labels.and_then(|labels| labels.get(key)).and_then(Value::as_str).unwrap_or_default()
}
