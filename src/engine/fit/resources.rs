//! Resources, the pod count among them, as plugins/noderesources/fit.go of kube-scheduler has
//! them: what is not asked for is not looked at, however overcommitted.

use crate::facts::{NodeFacts, ShapeFacts};
use crate::fit::volumes::driver_of;
use crate::outcome::Rule;
use crate::rooms::Shape;
use crate::world::model::Room;

/// True for resources that count as GPUs in queues and strategies.
#[must_use]
pub fn is_gpu(resource: &str) -> bool {
    matches!(resource, "nvidia.com/gpu" | "amd.com/gpu")
}

/// True when the node has GPUs.
#[must_use]
pub fn offers_gpus(node: &NodeFacts) -> bool {
    node.allocatable.iter().any(|(name, amount)| is_gpu(name) && *amount > 0)
}

/// Copies for which every requested resource suffices; a request of zero asks for nothing. Volumes that pods share
/// count once, with the first copy.
pub(super) fn slots(room: &Room, shape: &Shape) -> u32 {
    let free = |column: usize| room.free.get(column).copied().unwrap_or(0) - room.new_volumes(&shape.shared, column);
    let mut shared = shape.shared.iter().map(|(column, _)| *column);
    if shared.any(|column| room.new_volumes(&shape.shared, column) > 0 && free(column) < 0) {
        return 0;
    }
    let asked = shape.requests.iter().filter(|(_, amount)| *amount > 0);
    let copies = asked.map(|(column, amount)| free(*column).max(0) / amount);
    u32::try_from(copies.min().unwrap_or(i64::from(u32::MAX))).unwrap_or(u32::MAX)
}

/// The last resource, by column, of which too little is free.
pub(super) fn shortage(room: &Room, shape: &Shape, names: &[String]) -> Option<Rule> {
    let shared = shape.shared.iter().map(|(column, _)| (*column, 0));
    let mut asked = shape.requests.iter().rev().copied().chain(shared);
    let short = asked.find(|(column, amount)| {
        let all = amount + room.new_volumes(&shape.shared, *column);
        all > 0 && room.free.get(*column).copied().unwrap_or(0) < all
    });
    short.map(|(column, _)| match driver_of(&names[column]) {
        Some(driver) => Rule::VolumeLimit(driver.to_owned()),
        None => Rule::Insufficient(names[column].clone()),
    })
}

/// One for a pod without GPUs on a node that has some.
pub(super) fn cost(node: &NodeFacts, shape: &ShapeFacts) -> i64 {
    i64::from(!shape.requests.keys().any(|name| is_gpu(name)) && offers_gpus(node))
}
