//! Clusters that mix the rules, from a seed.

use serde_json::{Map, Value, json};

use super::storage::{self, Storage};

/// Pods asked about per cluster.
pub(super) const CANDIDATES: u64 = 50;

/// What one round is about.
pub(super) struct Generated {
    pub(super) nodes: Vec<Value>,
    /// Claims, volumes, limits and capacities.
    pub(super) storage: Vec<Value>,
    pub(super) placed: Vec<Placed>,
    pub(super) candidates: Vec<Value>,
}

/// A pod that is on a node.
pub(super) struct Placed {
    pub(super) pod: Value,
    /// It ended well, so that it holds nothing.
    pub(super) finished: bool,
}

/// A stream of numbers that is the same everywhere (SplitMix64).
pub(super) struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(super) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(super) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// Objects that every round shares.
pub(super) fn classes() -> Vec<Value> {
    let mut classes = storage::classes();
    classes.push(json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "heavy"}, "handler": "heavy",
        "overhead": {"podFixed": {"cpu": "500m", "memory": "100Mi"}},
        "scheduling": {"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "k1", "operator": "Exists"}]},
    }));
    classes
}

/// The cluster of a seed.
pub(super) fn cluster(seed: u64, namespace: &str) -> Generated {
    let mut dice = Dice(seed.wrapping_mul(0x1000_0000_01b3));
    let n_nodes = 4 + dice.below(6);
    let names: Vec<String> = (0..n_nodes).map(|i| format!("s{seed}-n{i}")).collect();
    let nodes = names.iter().map(|name| node(&mut dice, name)).collect();
    let storage = Storage::of(&mut dice, seed, &names, namespace);
    let n_placed = dice.below(2 * n_nodes);
    let placed = (0..n_placed)
        .map(|i| {
            let mut placed = placed(&mut dice, &format!("placed-{seed}-{i}"), &names);
            placed.pod["spec"]["volumes"] = storage.for_placed(&mut dice);
            placed
        })
        .collect();
    let candidates = (0..CANDIDATES)
        .map(|i| {
            let mut pod = candidate(&mut dice, &format!("ask-{seed}-{i}"), &names);
            pod["spec"]["volumes"] = storage.for_candidate(&mut dice);
            pod
        })
        .collect();
    Generated { nodes, storage: storage.objects, placed, candidates }
}

fn node(dice: &mut Dice, name: &str) -> Value {
    let mut labels = Map::new();
    labels.insert("kubernetes.io/hostname".to_owned(), json!(name));
    if dice.percent(85) {
        labels.insert("zone".to_owned(), json!(dice.pick(&["a", "b", "c"])));
    }
    if dice.percent(60) {
        labels.insert("size".to_owned(), json!(dice.pick(&["1", "5", "10", "3", "007", "big", ""])));
    }
    if dice.percent(40) {
        labels.insert("topology.kubernetes.io/zone".to_owned(), json!(dice.pick(&["east", "west"])));
    }
    if dice.percent(40) {
        labels.insert("disk".to_owned(), json!(dice.pick(&["ssd", "hdd"])));
    }
    let mut taints = Vec::new();
    for key in ["k1", "k2"] {
        if dice.percent(25) {
            let effect = dice.pick(&["NoSchedule", "NoSchedule", "PreferNoSchedule", "NoExecute"]);
            taints.push(json!({"key": key, "value": dice.pick(&["", "v1", "v2"]), "effect": effect}));
        }
    }
    let mut capacity = Map::new();
    capacity.insert("cpu".to_owned(), json!(dice.pick(&["1", "2", "2500m", "4"])));
    capacity.insert("memory".to_owned(), json!(dice.pick(&["1Gi", "2Gi", "3G", "4Gi"])));
    capacity.insert("pods".to_owned(), json!(dice.pick(&["1", "2", "3", "110", "110"])));
    capacity.insert("ephemeral-storage".to_owned(), json!(dice.pick(&["0", "10Gi"])));
    if dice.percent(60) {
        capacity.insert("nvidia.com/gpu".to_owned(), json!(dice.pick(&["0", "1", "2", "8"])));
    }
    let ready = dice.pick(&["True", "True", "True", "True", "True", "True", "False", "Unknown"]);
    let pressure = if dice.percent(10) { "True" } else { "False" };
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, "unschedulable": dice.percent(12)},
        "status": {
            "capacity": capacity, "allocatable": capacity,
            "conditions": [
                {"type": "Ready", "status": ready}, {"type": "MemoryPressure", "status": pressure},
                {"type": "DiskPressure", "status": "False"}, {"type": "PIDPressure", "status": "False"},
            ],
        },
    })
}

fn placed(dice: &mut Dice, name: &str, nodes: &[String]) -> Placed {
    let mut spec = Map::new();
    containers(dice, &mut spec, 25);
    spec.insert("nodeName".to_owned(), json!(dice.pick(&nodes.iter().collect::<Vec<_>>())));
    // Nothing is to chase it away while questions are asked.
    spec.insert("tolerations".to_owned(), json!([{"operator": "Exists"}]));
    pod_rules(dice, &mut spec, 12);
    let scheduler = dice.pick(&["default-scheduler", "another"]);
    spec.insert("schedulerName".to_owned(), json!(scheduler));
    let pod = json!({"metadata": {"name": name, "labels": labels(dice)}, "spec": spec});
    Placed { pod, finished: dice.percent(20) }
}

fn candidate(dice: &mut Dice, name: &str, nodes: &[String]) -> Value {
    let mut spec = Map::new();
    containers(dice, &mut spec, 15);
    if dice.percent(20) {
        let selector = dice.pick(&[("zone", "a"), ("zone", "b"), ("disk", "ssd"), ("size", "007"), ("size", "")]);
        spec.insert("nodeSelector".to_owned(), json!({selector.0: selector.1}));
    }
    if dice.percent(40) {
        let terms: Vec<Value> = (0..=dice.below(2)).map(|_| node_term(dice, nodes)).collect();
        spec.insert(
            "affinity".to_owned(),
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}),
        );
    }
    pod_rules(dice, &mut spec, 15);
    let tolerations: Vec<Value> = (0..dice.below(4)).map(|_| toleration(dice)).collect();
    spec.insert("tolerations".to_owned(), json!(tolerations));
    if dice.percent(8) {
        spec.insert("runtimeClassName".to_owned(), json!("heavy"));
    }
    json!({"metadata": {"name": name, "labels": labels(dice)}, "spec": spec})
}

/// Affinity to and against other pods, and spread, each in `chance` percent of the pods.
fn pod_rules(dice: &mut Dice, spec: &mut Map<String, Value>, chance: u64) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        if dice.percent(chance) {
            let terms: Vec<Value> = (0..=dice.below(2)).map(|_| pod_term(dice)).collect();
            let affinity = spec.entry("affinity").or_insert_with(|| json!({}));
            affinity[kind] = json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
        }
    }
    if dice.percent(chance) {
        let mut constraint = json!({
            "maxSkew": dice.pick(&[1, 1, 2]), "topologyKey": dice.pick(&["zone", "kubernetes.io/hostname", "none"]),
            "whenUnsatisfiable": dice.pick(&["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]),
            "labelSelector": pod_selector(dice),
        });
        if dice.percent(30) {
            constraint["nodeAffinityPolicy"] = json!(dice.pick(&["Honor", "Ignore"]));
            constraint["nodeTaintsPolicy"] = json!(dice.pick(&["Honor", "Ignore"]));
        }
        if dice.percent(20) && constraint["whenUnsatisfiable"] == "DoNotSchedule" {
            constraint["minDomains"] = json!(dice.pick(&[1, 2, 4]));
        }
        if dice.percent(20) {
            constraint["labelSelector"] = json!({"matchLabels": {"app": dice.pick(&["x", "y"])}});
            constraint["matchLabelKeys"] = json!(["tier"]);
        }
        // Up to 1.36.3 at least, kube-scheduler counts no pod for an empty selector (kubernetes/kubernetes#141339); Berth
        // counts all, as the API says. Written like this, both do.
        if constraint["labelSelector"] == json!({}) {
            constraint["labelSelector"] = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
        }
        spec.insert("topologySpreadConstraints".to_owned(), json!([constraint]));
    }
}

fn pod_term(dice: &mut Dice) -> Value {
    let mut term = json!({
        "topologyKey": dice.pick(&["zone", "zone", "kubernetes.io/hostname", "disk"]),
        "labelSelector": pod_selector(dice),
    });
    match dice.below(8) {
        0 => term["namespaceSelector"] = json!({}),
        1 => term["namespaces"] = json!(["elsewhere"]),
        2 => {
            term["labelSelector"] = json!({"matchLabels": {"app": dice.pick(&["x", "y"])}});
            term[dice.pick(&["matchLabelKeys", "mismatchLabelKeys"])] = json!(["tier"]);
        }
        _ => {}
    }
    term
}

fn pod_selector(dice: &mut Dice) -> Value {
    match dice.below(5) {
        0 => json!({}),
        1 => json!({"matchLabels": {"app": dice.pick(&["x", "y", "z"]), "tier": dice.pick(&["1", "2"])}}),
        2 => {
            let operator = dice.pick(&["In", "NotIn"]);
            json!({"matchExpressions": [{"key": "app", "operator": operator, "values": [dice.pick(&["x", "y"]), "z"]}]})
        }
        _ => json!({"matchLabels": {"app": dice.pick(&["x", "y", "z"])}}),
    }
}

fn labels(dice: &mut Dice) -> Value {
    json!({"app": dice.pick(&["x", "y", "z"]), "tier": dice.pick(&["1", "2"])})
}

fn node_term(dice: &mut Dice, nodes: &[String]) -> Value {
    let expressions: Vec<Value> = (0..dice.below(3)).map(|_| expression(dice)).collect();
    let mut term = Map::new();
    if !expressions.is_empty() {
        term.insert("matchExpressions".to_owned(), json!(expressions));
    }
    if dice.percent(25) {
        let name = dice.pick(&nodes.iter().collect::<Vec<_>>());
        let operator = dice.pick(&["In", "NotIn"]);
        term.insert("matchFields".to_owned(), json!([{"key": "metadata.name", "operator": operator, "values": [name]}]));
    }
    Value::Object(term)
}

fn expression(dice: &mut Dice) -> Value {
    let key = dice.pick(&["zone", "size", "disk", "none"]);
    let operator = dice.pick(&["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]);
    let values: Vec<&str> = match operator {
        "In" | "NotIn" => (0..=dice.below(2)).map(|_| dice.pick(&["a", "b", "c", "5", "007", "ssd", ""])).collect(),
        "Gt" | "Lt" => vec![dice.pick(&["0", "4", "5", "-5", "007"])],
        _ => Vec::new(),
    };
    json!({"key": key, "operator": operator, "values": values})
}

fn toleration(dice: &mut Dice) -> Value {
    let effect = dice.pick(&["", "NoSchedule", "NoExecute", "PreferNoSchedule"]);
    let key = dice.pick(&[
        "k1", "k1", "k2", "k2", "", "node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable", "node.kubernetes.io/memory-pressure",
    ]);
    let mut toleration = json!({"key": key, "operator": "Exists", "effect": effect});
    if !key.is_empty() && dice.percent(50) {
        toleration["operator"] = json!(dice.pick(&["Equal", ""]));
        toleration["value"] = json!(dice.pick(&["", "v1", "v2"]));
    }
    toleration
}

/// Containers of every kind, with ports in `ports` percent of the pods.
fn containers(dice: &mut Dice, spec: &mut Map<String, Value>, ports: u64) {
    let mut main: Vec<Value> = (0..=dice.below(2)).map(|i| container(dice, &format!("c{i}"))).collect();
    if dice.percent(ports) {
        let mut port = json!({"containerPort": dice.pick(&[80, 81]), "protocol": dice.pick(&["TCP", "UDP"])});
        if dice.percent(80) {
            port["hostPort"] = port["containerPort"].clone();
            port["hostIP"] = json!(dice.pick(&["", "0.0.0.0", "127.0.0.1", "10.0.0.1"]));
        } else {
            spec.insert("hostNetwork".to_owned(), json!(true));
        }
        main[0]["ports"] = json!([port]);
    }
    spec.insert("containers".to_owned(), json!(main));
    let init: Vec<Value> = (0..dice.below(3).saturating_sub(dice.below(2)))
        .map(|i| {
            let mut init = container(dice, &format!("i{i}"));
            if dice.percent(50) {
                init["restartPolicy"] = json!("Always");
            }
            init
        })
        .collect();
    spec.insert("initContainers".to_owned(), json!(init));
    if dice.percent(8) {
        // Requests of the pod as a whole: never below those of its containers.
        spec.insert("resources".to_owned(), json!({"requests": {"cpu": "7", "memory": "1Gi"}}));
        if dice.percent(60) {
            spec.insert("resources".to_owned(), json!({"requests": {"cpu": "3500m"}}));
        }
    }
}

fn container(dice: &mut Dice, name: &str) -> Value {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    if dice.percent(60) {
        let cpu = dice.pick(&["0", "100m", "250m", "500m", "1", "1500m"]);
        let list = if dice.percent(70) { &mut requests } else { &mut limits };
        list.insert("cpu".to_owned(), json!(cpu));
    }
    if dice.percent(40) {
        requests.insert("memory".to_owned(), json!(dice.pick(&["64Mi", "500M", "1Gi", "1000000001"])));
    }
    if dice.percent(10) {
        requests.insert("ephemeral-storage".to_owned(), json!(dice.pick(&["0", "1Gi", "20Gi"])));
    }
    if dice.percent(20) {
        limits.insert("nvidia.com/gpu".to_owned(), json!(dice.pick(&["0", "1", "2"])));
    }
    if dice.percent(3) {
        limits.insert("example.com/foo".to_owned(), json!(dice.pick(&["0", "1"])));
    }
    json!({"name": name, "image": "none", "resources": {"requests": requests, "limits": limits}})
}
