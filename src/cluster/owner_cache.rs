//! What is known of owners: the lookup that grouping walks over in a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_api::grouping_rule::GroupingRuleSpec;
use serde_json::Value;

use crate::grouping::{ObjectId, OwnerLookup, Owners};

/// Owners by UID, and those that can't be read.
#[derive(Default)]
pub(super) struct OwnerCache {
    pub(super) by_uid: BTreeMap<String, Arc<Value>>,
    pub(super) unreadable: BTreeSet<String>,
    /// Grouping rules by the UID of their object; of two for one kind the one of the lower UID counts, whatever came first.
    pub(super) rules: BTreeMap<String, Arc<GroupingRuleSpec>>,
}

impl Owners for OwnerCache {
    fn rule(&self, group: &str, kind: &str) -> Option<Arc<GroupingRuleSpec>> {
        self.rules.values().find(|rule| rule.group == group && rule.kind == kind).cloned()
    }

    fn get(&self, id: &ObjectId) -> OwnerLookup {
        match self.by_uid.get(&id.uid) {
            Some(object) => OwnerLookup::Found(Arc::clone(object)),
            None if self.unreadable.contains(&id.uid) => OwnerLookup::Forbidden,
            None => OwnerLookup::Missing,
        }
    }
}
