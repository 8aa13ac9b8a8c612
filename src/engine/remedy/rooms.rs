//! How much room every domain has for a gang: what an answer rests on.

use crate::ids::{DomainIdx, TreeIdx};
use crate::outcome::{DomainPath, Rule};
use crate::place::Solver;
use crate::place::build::Prepared;
use crate::policy::Policy;
use crate::topology::Tree;
use crate::world::World;

/// Room of one domain for the minimum of a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainRoom {
    /// Its level's label; empty for the whole cluster.
    pub level: String,
    /// Its path; empty for the whole cluster.
    pub path: DomainPath,
    /// Nodes in it.
    pub nodes: u32,
    /// Pods of those that must be placed that have room there, each shape alone.
    pub has: u64,
    /// Pods that must be placed.
    pub needs: u64,
    /// Nodes that each rule refuses, for the pods of the first shape, most first.
    pub refusals: Vec<(Rule, u32)>,
}

/// Room of every domain of the gang's topology for what waits of its minimum, in depth-first order, the cluster first.
/// Empty for a gang that is not known, that holds a mistake, or of which nothing waits.
#[must_use]
pub fn domain_rooms(world: &World, policy: &Policy, uid: &str) -> Vec<DomainRoom> {
    let mut world = world.fork();
    world.refresh_trees();
    let mut ledger = std::mem::take(&mut world.rooms);
    let topology = world.topology_of_gang(uid, policy.default_topology.as_deref());
    let tree_idx = topology.and_then(|name| world.tree_by_topology.get(&name).copied()).unwrap_or(TreeIdx(0));
    let Some(gang) = world.gang_by_uid(uid) else { return Vec::new() };
    let Ok(prepared) = Prepared::new(&world, gang, policy) else { return Vec::new() };
    let item = prepared.minimum(&world, 0);
    let demand = item.least_demand();
    let needs: u64 = demand.iter().map(|(_, n)| *n as u64).sum();
    let Some((first, _)) = demand.first().copied() else { return Vec::new() };
    let mut solver = Solver::new(&world, &mut ledger, policy);
    let tree = &world.trees[tree_idx.at()];
    let present = (0..tree.domains.len() as u32).map(DomainIdx).filter(|domain| !tree.domain(*domain).absent);
    present
        .map(|domain| DomainRoom {
            level: tree.label(tree.domain(domain).depth).to_owned(),
            path: if domain == Tree::ROOT { Vec::new() } else { tree.path(domain) },
            nodes: tree.positions(domain).len() as u32,
            has: solver.room_in(&item, tree_idx, domain),
            needs,
            refusals: solver.refusals(first, tree_idx, domain),
        })
        .collect()
}
