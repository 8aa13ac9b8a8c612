//! The labels that clouds, operators and labellers write, widest level first.

use std::collections::BTreeSet;

/// Where labels come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// For people.
    pub name: &'static str,
    /// Keys of the fabric, widest first.
    pub fabric: Vec<String>,
    /// Keys of accelerator domains, widest first: above or below the nearest fabric level, as the values say.
    pub accelerator: Vec<String>,
}

/// The host name: the narrowest level of every topology.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// The well-known labels, which every provider writes.
pub const PLACES: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// GPUs that share one NVLink fabric, as GPU feature discovery writes them.
pub const CLIQUE: &str = "nvidia.com/gpu.clique";

/// The profile of cliques without a fabric.
const GPU_DISCOVERY: &str = "GPU feature discovery";

/// Name, keys of the fabric, keys of accelerator domains; sources in the design's reference on discovery, section 9.
const FIXED: [(&str, &[&str], &[&str]); 13] = [
    (
        "Amazon EKS",
        &[
            "topology.k8s.aws/network-node-layer-1",
            "topology.k8s.aws/network-node-layer-2",
            "topology.k8s.aws/network-node-layer-3",
            "topology.k8s.aws/network-node-layer-4",
        ],
        &["topology.k8s.aws/ultraserver-id", CLIQUE],
    ),
    (
        "Google GKE",
        &["cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock", "cloud.google.com/gce-topology-host"],
        &[CLIQUE],
    ),
    (
        "Oracle OKE",
        &["oci.oraclecloud.com/rdma.hpc_island_id", "oci.oraclecloud.com/rdma.network_block_id", "oci.oraclecloud.com/rdma.local_block_id"],
        &[CLIQUE],
    ),
    (
        "CoreWeave",
        &["backend.coreweave.cloud/fabric", "backend.coreweave.cloud/superpod", "backend.coreweave.cloud/leafgroup"],
        &["ds.coreweave.com/nvlink.domain", CLIQUE],
    ),
    ("CoreWeave, older keys", &["ib.coreweave.cloud/fabric", "ib.coreweave.cloud/superpod", "ib.coreweave.cloud/leafgroup"], &["node.coreweave.cloud/rack", CLIQUE]),
    (
        "Nebius",
        &["topology.nebius.com/gpu-cluster-id", "topology.nebius.com/tier-2", "topology.nebius.com/tier-1", "topology.nebius.com/tier-0"],
        &["topology.nebius.com/nvl-instance-group-id", CLIQUE],
    ),
    ("Crusoe", &["crusoe.ai/ib.partition.id", "crusoe.ai/pod.id"], &[CLIQUE]),
    ("Azure", &["kubernetes.azure.com/ppg"], &[CLIQUE]),
    (
        "Topograph 0.3 to 0.5",
        &["network.topology.nvidia.com/core", "network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf"],
        &["network.topology.nvidia.com/accelerator", CLIQUE],
    ),
    (
        "Topograph 0.1",
        &["network.topology.nvidia.com/datacenter", "network.topology.nvidia.com/spine", "network.topology.nvidia.com/block"],
        &["network.topology.nvidia.com/accelerator", CLIQUE],
    ),
    ("Volcano", &["volcano.sh/hypernode"], &[CLIQUE]),
    ("KAI's examples", &["accelerator.nvidia.com/rack"], &[CLIQUE]),
    (GPU_DISCOVERY, &[], &[CLIQUE]),
];

/// Topograph's current keys: tiers without an end, the highest number the widest.
const TIERS: [(&str, &str, &[&str]); 2] = [
    ("Topograph 1", "fabric.topograph.run/tier-", &["accelerator.topograph.run/domain", "accelerator.topograph.run/sub-domain", CLIQUE]),
    ("Topograph before 1", "network.topology.nvidia.com/tier-", &["xclr.topology.nvidia.com/domain", "xclr.topology.nvidia.com/sub-domain", CLIQUE]),
];

/// Words that sites name levels by, widest first: alone, or behind a prefix of their own (`example.com/rack`).
const WORDS: [&str; 10] = ["datacenter", "dc", "room", "row", "fabric", "superpod", "block", "spine", "rack", "leaf"];

/// One profile for each prefix that such words stand behind.
fn plain_words(keys: &BTreeSet<&str>) -> Vec<Profile> {
    let prefixes: BTreeSet<&str> = keys.iter().filter_map(|key| WORDS.iter().find_map(|word| key.strip_suffix(word))).collect();
    let prefixes = prefixes.into_iter().filter(|prefix| prefix.is_empty() || prefix.ends_with('/'));
    let profile = |prefix: &str| Profile {
        name: "a site's own words",
        fabric: WORDS.iter().map(|word| format!("{prefix}{word}")).filter(|key| keys.contains(key.as_str())).collect(),
        accelerator: vec![CLIQUE.to_owned()],
    };
    prefixes.map(profile).collect()
}

/// All profiles, with the tiers that occur among these keys.
#[must_use]
pub fn all(keys: &BTreeSet<&str>) -> Vec<Profile> {
    let owned = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    let mut profiles = Vec::new();
    for (name, prefix, accelerator) in TIERS {
        let mut tiers: Vec<u32> = keys.iter().filter_map(|key| key.strip_prefix(prefix)?.parse().ok()).collect();
        tiers.sort_unstable_by(|a, b| b.cmp(a));
        let fabric = tiers.iter().map(|tier| format!("{prefix}{tier}")).collect();
        profiles.push(Profile { name, fabric, accelerator: owned(accelerator) });
    }
    profiles.extend(FIXED.iter().map(|(name, fabric, accelerator)| Profile { name, fabric: owned(fabric), accelerator: owned(accelerator) }));
    let last = profiles.len() - 1;
    profiles.splice(last..last, plain_words(keys));
    // Cliques alone are nobody's in particular.
    let is_there = |key: &String| key != CLIQUE && keys.contains(key.as_str());
    profiles.retain(|profile| profile.name == GPU_DISCOVERY || profile.fabric.iter().chain(&profile.accelerator).any(is_there));
    profiles
}
