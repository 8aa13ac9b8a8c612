//! Claims, volumes and drivers for the generated clusters.

use serde_json::{Map, Value, json};

use super::generate::Dice;

/// A driver with limits and published capacities.
const DRIVER: &str = "csi.example.com";

/// Storage classes and the driver.
pub(super) fn classes() -> Vec<Value> {
    let class = |name: &str, provisioner: &str, mode: &str, topologies: Value| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner, "volumeBindingMode": mode, "allowedTopologies": topologies,
        })
    };
    let zones = json!([{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}]);
    vec![
        class("static", "kubernetes.io/no-provisioner", "WaitForFirstConsumer", json!([])),
        class("made", "example.com/maker", "WaitForFirstConsumer", zones),
        class("counted", DRIVER, "WaitForFirstConsumer", json!([])),
        class("now", "kubernetes.io/no-provisioner", "Immediate", json!([])),
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
            "spec": {"storageCapacity": true, "attachRequired": false},
        }),
    ]
}

/// Objects of one cluster besides its nodes and pods, and the claims that pods may use.
#[derive(Default)]
pub(super) struct Storage {
    pub(super) objects: Vec<Value>,
    /// Claims for pods that are asked about.
    claims: Vec<String>,
    /// Bound claims for pods on nodes.
    placed: Vec<String>,
}

impl Storage {
    pub(super) fn of(dice: &mut Dice, seed: u64, nodes: &[String], namespace: &str) -> Self {
        let mut storage = Self::default();
        for node in nodes {
            if dice.percent(70) {
                storage.objects.push(json!({
                    "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": node},
                    "spec": {"drivers": [{
                        "name": DRIVER, "nodeID": node, "topologyKeys": null,
                        "allocatable": {"count": dice.pick(&[1, 2, 3])},
                    }]},
                }));
            }
        }
        for zone in ["a", "b", "c"] {
            if dice.percent(60) {
                let mut capacity = json!({
                    "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
                    "metadata": {"name": format!("s{seed}-{zone}")}, "storageClassName": "counted",
                    "nodeTopology": {"matchLabels": {"zone": zone}}, "capacity": dice.pick(&["1Gi", "5Gi", "100Gi"]),
                });
                if dice.percent(30) {
                    capacity["maximumVolumeSize"] = json!("2Gi");
                }
                storage.objects.push(capacity);
            }
        }
        for i in 0..dice.below(6) {
            storage.objects.push(volume(dice, &format!("s{seed}-free-{i}"), "static", nodes));
        }
        for i in 0..8 {
            storage.add_claim(dice, &format!("s{seed}-open-{i}"));
        }
        for i in 0..10 {
            let name = format!("s{seed}-bound-{i}");
            let class = dice.pick(&["static", "now", "counted"]);
            let mut volume = volume(dice, &name, class, nodes);
            volume["spec"]["claimRef"] = json!({"kind": "PersistentVolumeClaim", "namespace": namespace, "name": name});
            let mode = dice.pick(&["ReadWriteOnce", "ReadWriteOncePod"]);
            volume["spec"]["accessModes"] = json!([mode]);
            volume["spec"]["volumeMode"] = json!("Filesystem");
            volume["spec"]["capacity"]["storage"] = json!("10Gi");
            storage.objects.push(volume);
            let mut claim = claim(&name, &json!(class), "10Gi");
            claim["spec"]["volumeName"] = json!(name);
            claim["spec"]["accessModes"] = json!([mode]);
            storage.objects.push(claim);
            if dice.percent(60) { storage.claims.push(name.clone()) }
            if dice.percent(60) { storage.placed.push(name) }
        }
        storage.claims.push("missing".to_owned());
        storage
    }

    fn add_claim(&mut self, dice: &mut Dice, name: &str) {
        let class = dice.pick(&["static", "static", "made", "counted", "counted", "now", "no-such-class"]);
        let size = dice.pick(&["1Gi", "3Gi", "10Gi"]);
        let mut claim = claim(name, &json!(class), size);
        if dice.percent(15) {
            claim["spec"]["volumeMode"] = json!("Block");
        }
        if dice.percent(15) {
            claim["spec"]["accessModes"] = json!(["ReadWriteMany"]);
        }
        if dice.percent(15) {
            claim["spec"]["selector"] = json!({"matchLabels": {"tier": "gold"}});
        }
        self.objects.push(claim);
        self.claims.push(name.to_owned());
    }

    /// Volumes of a pod that is asked about.
    pub(super) fn for_candidate(&self, dice: &mut Dice) -> Value {
        if !dice.percent(30) {
            return json!([]);
        }
        volumes((0..=dice.below(2)).map(|_| self.claims[dice.below(self.claims.len() as u64) as usize].clone()).collect())
    }

    /// Volumes of a pod on a node.
    pub(super) fn for_placed(&self, dice: &mut Dice) -> Value {
        if self.placed.is_empty() || !dice.percent(50) {
            return json!([]);
        }
        volumes(vec![self.placed[dice.below(self.placed.len() as u64) as usize].clone()])
    }
}

fn volumes(mut claims: Vec<String>) -> Value {
    claims.sort_unstable();
    claims.dedup();
    let volume = |(i, claim): (usize, &String)| json!({"name": format!("v{i}"), "persistentVolumeClaim": {"claimName": claim}});
    claims.iter().enumerate().map(volume).collect()
}

fn claim(name: &str, class: &Value, size: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    })
}

fn volume(dice: &mut Dice, name: &str, class: &str, nodes: &[String]) -> Value {
    let mut labels = Map::new();
    if dice.percent(30) {
        labels.insert("tier".to_owned(), json!("gold"));
    }
    if dice.percent(30) {
        let zone = dice.pick(&["east", "west", "east__west"]);
        labels.insert("topology.kubernetes.io/zone".to_owned(), json!(zone));
    }
    let mut spec = json!({
        "storageClassName": class, "capacity": {"storage": dice.pick(&["2Gi", "5Gi", "10Gi"])},
        "accessModes": dice.pick(&[&["ReadWriteOnce"][..], &["ReadWriteOnce", "ReadWriteMany"][..]]),
        "volumeMode": dice.pick(&["Filesystem", "Filesystem", "Block"]),
        "persistentVolumeReclaimPolicy": "Retain",
    });
    if dice.percent(50) {
        spec["csi"] = json!({"driver": DRIVER, "volumeHandle": name});
    } else {
        spec["hostPath"] = json!({"path": "/none"});
    }
    let node = dice.pick(&nodes.iter().collect::<Vec<_>>());
    let (key, value) = if dice.percent(50) { ("kubernetes.io/hostname", node.as_str()) } else { ("zone", dice.pick(&["a", "b"])) };
    if dice.percent(80) {
        let expression = json!({"key": key, "operator": "In", "values": [value]});
        spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}});
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "labels": labels}, "spec": spec})
}
