//! The pods that controllers would create for the workloads in a set of files: names, labels, owners and all.
//!
//! The same objects always give the same pods: UIDs follow from names, nothing is random. Pods that are already in the
//! input count as those of their workload, so that a dump of a cluster gives no pod twice.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::kinds;
use super::object::{field, integer};
use super::owners::{ObjectId, owner_of};
use super::{GroupProblem, ProblemCode};

/// The most pods of one workload: a slip of the finger must not take all memory.
const MOST_PODS: i32 = 200_000;

/// Kinds whose controllers make another workload and leave the pods to that one: where it is in the input, it counts.
const DELEGATES: [&str; 5] = ["CronJob", "DynamoGraphDeployment", "RayJob", "RayService", "TrainJob"];

/// A workload that could not be expanded.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
#[error("{object}: {field}: {message}")]
pub struct ExpandProblem {
    /// Position of the workload in the input.
    pub position: usize,
    /// The workload, as `Kind/name`.
    pub object: String,
    /// The field that is wrong (`spec.template.spec`).
    pub field: String,
    /// Why.
    pub message: String,
}

impl From<GroupProblem> for ExpandProblem {
    fn from(problem: GroupProblem) -> Self {
        let message = format!("is {}; allowed is {}", problem.value, problem.allowed);
        Self { position: 0, object: problem.object, field: problem.key, message }
    }
}

/// What the workloads of an input became.
#[derive(Clone, Debug, Default)]
pub struct Expansion {
    /// Owners: every workload, with its namespace and UID filled in, and the objects that controllers put between it and
    /// its pods. Together with the other objects of the input they are the lookup of the owner walk.
    pub owners: Vec<Value>,
    /// The pods that the input lacks, workload by workload in the order of the input.
    pub pods: Vec<Value>,
    /// Workloads that gave no pods, and why.
    pub problems: Vec<ExpandProblem>,
}

/// Writes one workload's pods and intermediate owners into the plan.
pub type ExpandFn = fn(&Workload<'_>, &mut Plan) -> Result<(), ExpandProblem>;

/// What one workload becomes.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Owners between the workload and its pods.
    pub objects: Vec<Value>,
    /// Its pods.
    pub pods: Vec<Draft>,
}

/// A pod that the controller would have created by now.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The pod.
    pub pod: Value,
    /// What makes it the same as a pod that is already there.
    pub identity: Identity,
}

/// What makes two pods of one workload the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Nothing: one is as good as another.
    Any,
    /// The name.
    Name,
    /// The value of a label.
    Label(&'static str, String),
}

/// A workload to expand.
#[derive(Clone, Debug)]
pub struct Workload<'a> {
    /// The workload, with namespace and UID.
    pub object: Value,
    /// Objects of the input that it owns directly.
    pub children: Vec<&'a Value>,
    /// All objects of the input, for those that it names.
    pub others: &'a [Value],
}

/// Whether simulate creates pods for objects of this kind.
#[must_use]
pub fn is_workload(object: &Value) -> bool {
    let id = ObjectId::of(object);
    kinds::find(id.group(), &id.kind).is_some_and(|kind| kind.expand.is_some())
}

/// Whether workloads name objects of this kind and take their pods' template from them.
#[must_use]
pub fn is_template(object: &Value) -> bool {
    let id = ObjectId::of(object);
    id.group() == "trainer.kubeflow.org" && matches!(id.kind.as_str(), "TrainingRuntime" | "ClusterTrainingRuntime")
}

/// Expands every workload among the objects.
#[must_use]
pub fn expand(objects: &[Value]) -> Expansion {
    let family = Family::of(objects);
    let mut expansion = Expansion::default();
    for (position, object) in objects.iter().enumerate() {
        let id = ObjectId::of(object);
        let Some(expand) = kinds::find(id.group(), &id.kind).and_then(|kind| kind.expand) else {
            continue;
        };
        let object = with_identity(object);
        expansion.owners.push(object.clone());
        let children = family.children(&id.uid);
        let has_run = DELEGATES.contains(&id.kind.as_str()) && children.iter().any(|child| is_workload(child));
        if has_run || family.is_managed(&id.uid) {
            continue;
        }
        let workload = Workload { object, children, others: objects };
        let mut plan = Plan::default();
        let problem = texts_only(&workload).and_then(|()| expand(&workload, &mut plan)).err();
        match problem {
            Some(problem) => expansion.problems.push(ExpandProblem { position, ..problem }),
            None => {
                expansion.owners.append(&mut plan.objects);
                expansion.pods.extend(missing(plan.pods, &family.pods_below(&id.uid)));
            }
        }
    }
    expansion
}

/// The drafts that are not there yet.
fn missing(drafts: Vec<Draft>, present: &[&Value]) -> Vec<Value> {
    let name = |pod: &Value| ObjectId::of(pod).name;
    let names: BTreeSet<_> = present.iter().map(|pod| name(pod)).collect();
    let has_label = |key: &str, value: &str| {
        let labels = present.iter().filter_map(|pod| pod.pointer("/metadata/labels"));
        labels.filter_map(|labels| labels.get(key)?.as_str()).any(|of_pod| of_pod == value)
    };
    let is_active = |pod: &&&Value| pod.pointer("/status/phase").and_then(Value::as_str) != Some("Succeeded");
    let n_any = drafts.iter().filter(|draft| draft.identity == Identity::Any).count();
    let mut n_wanted = n_any.saturating_sub(present.iter().filter(is_active).count());
    let mut pods = Vec::new();
    for Draft { pod, identity } in drafts {
        let is_wanted = match &identity {
            Identity::Any => 0 < n_wanted && !names.contains(&name(&pod)),
            Identity::Name => !names.contains(&name(&pod)),
            Identity::Label(key, value) => !has_label(key, value),
        };
        if is_wanted {
            n_wanted = n_wanted.saturating_sub(usize::from(identity == Identity::Any));
            pods.push(pod);
        }
    }
    pods
}

/// Who owns whom among the objects of the input.
struct Family<'a> {
    by_uid: BTreeMap<String, &'a Value>,
    owner_of: BTreeMap<String, String>,
    children_of: BTreeMap<String, Vec<&'a Value>>,
}

impl<'a> Family<'a> {
    fn of(objects: &'a [Value]) -> Self {
        let mut family = Self { by_uid: BTreeMap::new(), owner_of: BTreeMap::new(), children_of: BTreeMap::new() };
        for object in objects {
            let id = ObjectId::of(object);
            if let Some(owner) = owner_of(object, &id.namespace).filter(|owner| !owner.uid.is_empty()) {
                family.children_of.entry(owner.uid.clone()).or_default().push(object);
                if !id.uid.is_empty() {
                    family.owner_of.insert(id.uid.clone(), owner.uid);
                }
            }
            if !id.uid.is_empty() {
                family.by_uid.insert(id.uid, object);
            }
        }
        family
    }

    fn children(&self, uid: &str) -> Vec<&'a Value> {
        if uid.is_empty() { Vec::new() } else { self.children_of.get(uid).cloned().unwrap_or_default() }
    }

    /// Whether another workload of the input makes the pods of this one.
    fn is_managed(&self, uid: &str) -> bool {
        let mut seen = BTreeSet::new();
        let mut uid = uid;
        while let Some(owner) = self.owner_of.get(uid).filter(|owner| seen.insert(owner.as_str())) {
            let is_maker = |object: &&Value| is_workload(object) && !DELEGATES.contains(&ObjectId::of(object).kind.as_str());
            if self.by_uid.get(owner).is_some_and(is_maker) {
                return true;
            }
            uid = owner;
        }
        false
    }

    /// The pods below an object, at any depth, that have not failed: a controller replaces those.
    fn pods_below(&self, uid: &str) -> Vec<&'a Value> {
        let mut pods = Vec::new();
        let mut seen = BTreeSet::new();
        let mut open = vec![uid.to_owned()];
        while let Some(uid) = open.pop() {
            if uid.is_empty() || !seen.insert(uid.clone()) {
                continue;
            }
            for child in self.children(&uid) {
                let id = ObjectId::of(child);
                let has_failed = child.pointer("/status/phase").and_then(Value::as_str) == Some("Failed");
                if id.kind == "Pod" && id.group().is_empty() && !has_failed {
                    pods.push(child);
                }
                open.push(id.uid);
            }
        }
        pods
    }
}

/// The object with its namespace and a UID.
fn with_identity(object: &Value) -> Value {
    let mut object = object.clone();
    let id = ObjectId::of(&object);
    let namespace = if id.namespace.is_empty() { "default" } else { &id.namespace };
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("namespace".to_owned(), json!(namespace));
        if id.uid.is_empty() {
            metadata.insert("uid".to_owned(), json!(uid(&id.kind, namespace, &id.name)));
        }
    }
    object
}

/// The API server refuses labels and annotations that are no texts; so do we, rather than read them as absent.
fn texts_only(workload: &Workload<'_>) -> Result<(), ExpandProblem> {
    for kind in ["labels", "annotations"] {
        let pointer = format!("/metadata/{kind}");
        let notes = workload.object.pointer(&pointer).and_then(Value::as_object);
        if let Some((key, value)) = notes.into_iter().flatten().find(|(_, value)| !value.is_string()) {
            return Err(workload.problem(&pointer, format!("{key} is {value}; allowed is text: put it in quotes")));
        }
    }
    Ok(())
}

impl Workload<'_> {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// Its UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    /// `Kind/name`.
    #[must_use]
    pub fn display(&self) -> String {
        ObjectId::of(&self.object).display()
    }

    fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether a field is true.
    #[must_use]
    pub fn is_true(&self, pointer: &str) -> bool {
        match self.object.pointer(pointer) {
            Some(Value::Bool(truth)) => *truth,
            // Words that kubectl reads as true; the YAML of files keeps them as text.
            Some(Value::String(word)) => matches!(word.to_lowercase().as_str(), "y" | "yes" | "on"),
            _ => false,
        }
    }

    /// A problem of a field.
    #[must_use]
    pub fn problem(&self, pointer: &str, message: impl Into<String>) -> ExpandProblem {
        ExpandProblem { position: 0, object: self.display(), field: field(pointer), message: message.into() }
    }

    /// A replica count; absent is 1.
    pub fn replicas(&self, pointer: &str) -> Result<i32, ExpandProblem> {
        let replicas = integer(&self.object, pointer, (0, i32::MAX), ProblemCode::InvalidReplicas)?.unwrap_or(1);
        self.limit(pointer, replicas)
    }

    /// The number of pods, unless it is more than any simulation needs.
    pub fn limit(&self, pointer: &str, n_pods: i32) -> Result<i32, ExpandProblem> {
        match n_pods {
            0..=MOST_PODS => Ok(n_pods),
            _ => Err(self.problem(pointer, format!("{n_pods} pods are more than the {MOST_PODS} that are created"))),
        }
    }

    /// An object that this workload owns.
    #[must_use]
    pub fn child(&self, api_version: &str, kind: &str, name: &str) -> Value {
        self.child_of(api_version, kind, name, &self.object)
    }

    /// An object in the workload's namespace, of another owner.
    #[must_use]
    pub fn child_of(&self, api_version: &str, kind: &str, name: &str, owner: &Value) -> Value {
        let namespace = self.text("/metadata/namespace");
        let mut child = json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid(kind, namespace, name),
                "ownerReferences": [reference(owner)],
            },
        });
        if let Some(time) = self.object.pointer("/metadata/creationTimestamp") {
            child["metadata"]["creationTimestamp"] = time.clone();
        }
        child
    }

    /// A pod from the template at a JSON pointer.
    pub fn pod(&self, template: &str, name: &str, owner: &Value) -> Result<PodDraft, ExpandProblem> {
        let Some(value) = self.object.pointer(template).filter(|value| value.is_object()) else {
            return Err(self.problem(template, "the pod template is missing"));
        };
        let spec = value.get("spec").filter(|spec| spec.is_object());
        let spec = spec.ok_or_else(|| self.problem(&format!("{template}/spec"), "the pod's spec is missing"))?;
        let containers = spec.get("containers").and_then(Value::as_array).map_or(0, Vec::len);
        if containers == 0 {
            return Err(self.problem(&format!("{template}/spec/containers"), "there is no container"));
        }
        let mut pod = self.child_of("v1", "Pod", name, owner);
        for kind in ["labels", "annotations"] {
            let pointer = format!("/metadata/{kind}");
            let notes = value.pointer(&pointer).and_then(Value::as_object).cloned().unwrap_or_default();
            if let Some((key, note)) = notes.iter().find(|(_, note)| !note.is_string()) {
                let message = format!("{key} is {note}; allowed is text: put it in quotes");
                return Err(self.problem(&format!("{template}{pointer}"), message));
            }
            pod["metadata"][kind] = Value::Object(notes);
        }
        pod["spec"] = spec.clone();
        pod["status"] = json!({"phase": "Pending"});
        Ok(PodDraft(pod))
    }
}

/// A pod to which its controller adds labels and annotations.
#[derive(Clone, Debug)]
pub struct PodDraft(Value);

impl PodDraft {
    /// With these labels, over those of the template.
    #[must_use]
    pub fn labels(self, labels: &Value) -> Self {
        self.with("labels", labels)
    }

    /// With these annotations, over those of the template.
    #[must_use]
    pub fn annotations(self, annotations: &Value) -> Self {
        self.with("annotations", annotations)
    }

    /// The pod.
    #[must_use]
    pub fn finish(self) -> Value {
        self.0
    }

    fn with(mut self, kind: &str, notes: &Value) -> Self {
        let known = self.0.pointer_mut(&format!("/metadata/{kind}")).and_then(Value::as_object_mut);
        if let (Some(known), Some(notes)) = (known, notes.as_object()) {
            known.extend(notes.iter().map(|(key, value)| (key.clone(), value.clone())));
            // Sorted, so that the same input gives the same bytes whatever order a map keeps.
            let sorted: BTreeMap<_, _> = std::mem::take(known).into_iter().collect();
            *known = sorted.into_iter().collect::<Map<_, _>>();
        }
        self
    }
}

fn reference(owner: &Value) -> Value {
    let id = ObjectId::of(owner);
    json!({
        "apiVersion": id.api_version, "kind": id.kind, "name": id.name, "uid": id.uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// The UID of an object that has none: the same for the same name.
#[must_use]
pub fn uid(kind: &str, namespace: &str, name: &str) -> String {
    let text = format!("{kind}/{namespace}/{name}");
    let (high, low) = (fnv(&text, 0xcbf2_9ce4_8422_2325), fnv(&text, 0x9ae1_6a3b_2f90_404f));
    let hex = format!("{high:016x}{low:016x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// A short hash, in the letters that controllers use in names.
#[must_use]
pub(crate) fn short_hash(text: &str) -> String {
    const LETTERS: &[u8; 16] = b"bcdfghjklmnpqrst";
    let hash = fnv(text, 0xcbf2_9ce4_8422_2325);
    (0..10).map(|place| char::from(LETTERS[usize::try_from((hash >> (place * 4)) & 15).unwrap_or(0)])).collect()
}

/// FNV-1a: stable across platforms and versions, unlike the standard library's hashers.
fn fnv(text: &str, basis: u64) -> u64 {
    text.bytes().fold(basis, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
