//! What controllers and schedulers made from something that is given as well: a mistake in it was written elsewhere.

use std::collections::BTreeMap;

use berth_api::keys;
use serde_json::Value;

use super::pod_templates;
use crate::simulate::input::Item;
use crate::simulate::objects::text;

/// Owners above owners that are followed.
const MAX_OWNERS: usize = 8;

/// The objects that somebody wrote, as far as the others show.
pub(super) fn written(items: &[Item]) -> impl Iterator<Item = &Item> {
    let by_uid: BTreeMap<&str, &Value> = items.iter().map(|item| (text(&item.value, "/metadata/uid"), &item.value)).filter(|(uid, _)| !uid.is_empty()).collect();
    items.iter().filter(move |item| !is_derived(&item.value, &by_uid))
}

/// True for a PodGroup that a grouper made, and for what an owner with pod templates made.
fn is_derived(object: &Value, by_uid: &BTreeMap<&str, &Value>) -> bool {
    let owner = |object: &Value| by_uid.get(text(object, "/metadata/ownerReferences/0/uid")).copied();
    if object["kind"] == "PodGroup" {
        return object["metadata"]["annotations"][keys::TOP_OWNER_METADATA].is_string() || owner(object).is_some();
    }
    let owners = std::iter::successors(owner(object), |above| owner(above)).take(MAX_OWNERS);
    owners.into_iter().any(|owner| owner["kind"] != "Pod" && !pod_templates(owner).is_empty())
}
