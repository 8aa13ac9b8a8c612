//! Claims, volumes, classes and what drivers say of nodes become facts.

use std::collections::{BTreeMap, BTreeSet};

use berth_api::quantity::{parse_units, parse_units_floor};
use berth_engine::facts::{
    ClaimFacts, CsiNodeFacts, Event, NodeTerm, ObjectKey, Requirement,
    SelectorOperator, StorageCapacityFacts, StorageClassFacts, VolumeFacts,
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::shape::{node_term, selector};
use super::{ConvertError, FieldError, Result, object_name, required_name, uid_of};

type Fields<T> = std::result::Result<T, FieldError>;

/// Older way to name a class; it takes the place of the field.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// The claim's binding is complete.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// The node that a scheduler chose for a claim.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Marks the class of claims that name none.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// The provisioner of classes whose volumes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Names of the claims that a pod uses, and which of them were made for it alone.
#[must_use]
pub fn claims_of(pod: &Pod) -> (Vec<String>, Vec<String>) {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let (mut claims, mut owned) = (BTreeSet::new(), BTreeSet::new());
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        if let Some(claim) = &volume.persistent_volume_claim {
            claims.insert(claim.claim_name.clone());
        } else if volume.ephemeral.is_some() {
            owned.insert(format!("{name}-{}", volume.name));
        }
    }
    claims.extend(owned.iter().cloned());
    (claims.into_iter().collect(), owned.into_iter().collect())
}

fn bytes(field: &str, quantity: Option<&Quantity>, up: bool) -> Fields<Option<i64>> {
    let Some(Quantity(text)) = quantity else { return Ok(None) };
    let parsed = if up { parse_units(text) } else { parse_units_floor(text) };
    parsed.map(Some).map_err(|error| FieldError::new(field, text, error.to_string()))
}

fn sorted(list: Option<&Vec<String>>) -> Vec<String> {
    let mut list = list.cloned().unwrap_or_default();
    list.sort_unstable();
    list
}

fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a String> {
    meta.annotations.as_ref()?.get(key)
}

/// Facts of a claim. `default_class` is the class of claims that name none, where the API server has not put it.
pub fn claim_facts(claim: &PersistentVolumeClaim, default_class: Option<&str>) -> Result<ClaimFacts> {
    claim_fields(claim, default_class).map_err(|error| error.of(object_name("v1", "PersistentVolumeClaim", &claim.metadata)))
}

fn claim_fields(claim: &PersistentVolumeClaim, default_class: Option<&str>) -> Fields<ClaimFacts> {
    let meta = &claim.metadata;
    let spec = claim.spec.clone().unwrap_or_default();
    let volume = spec.volume_name.clone().filter(|name| !name.is_empty());
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let access_modes = sorted(spec.access_modes.as_ref());
    let owner = meta.owner_references.iter().flatten().find(|owner| owner.kind == "Pod" && owner.controller == Some(true));
    Ok(ClaimFacts {
        uid: uid_of("PersistentVolumeClaim", meta),
        key: ObjectKey::new(meta.namespace.clone().unwrap_or_default(), required_name(meta)?),
        class: annotation(meta, CLASS_ANNOTATION)
            .cloned()
            .or_else(|| spec.storage_class_name.clone())
            .or_else(|| default_class.map(str::to_owned)),
        bound: volume.is_some() && annotation(meta, BIND_COMPLETED).is_some(),
        volume,
        lost: claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost"),
        terminating: meta.deletion_timestamp.is_some(),
        one_pod: access_modes.iter().any(|mode| mode == "ReadWriteOncePod"),
        access_modes,
        block: spec.volume_mode.as_deref() == Some("Block"),
        bytes: bytes("spec.resources.requests.storage", requests.and_then(|list| list.get("storage")), true)?.unwrap_or(0),
        selector: selector("spec.selector", spec.selector.as_ref())?,
        selected_node: annotation(meta, SELECTED_NODE).cloned(),
        owner_uid: owner.map(|owner| owner.uid.clone()),
    })
}

/// Facts of a volume.
pub fn volume_facts(volume: &PersistentVolume) -> Result<VolumeFacts> {
    volume_fields(volume).map_err(|error| error.of(object_name("v1", "PersistentVolume", &volume.metadata)))
}

fn volume_fields(volume: &PersistentVolume) -> Fields<VolumeFacts> {
    let meta = &volume.metadata;
    let name = required_name(meta)?;
    let spec = volume.spec.clone().unwrap_or_default();
    let field = "spec.nodeAffinity.required.nodeSelectorTerms";
    let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    let node_terms = required
        .map(|selector| {
            let terms = selector.node_selector_terms.iter().enumerate();
            terms.map(|(i, term)| node_term(&format!("{field}[{i}]"), term)).collect::<Fields<Vec<_>>>()
        })
        .transpose()?;
    let claim = spec.claim_ref.as_ref();
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let csi = spec.csi.as_ref();
    Ok(VolumeFacts {
        uid: uid_of("PersistentVolume", meta),
        labels: meta.labels.clone().unwrap_or_default(),
        node_terms,
        class: annotation(meta, CLASS_ANNOTATION).cloned().or(spec.storage_class_name).unwrap_or_default(),
        bytes: bytes("spec.capacity.storage", spec.capacity.as_ref().and_then(|list| list.get("storage")), false)?.unwrap_or(0),
        access_modes: sorted(spec.access_modes.as_ref()),
        block: spec.volume_mode.as_deref() == Some("Block"),
        claim: claim.map(|claim| {
            ObjectKey::new(claim.namespace.clone().unwrap_or_default(), claim.name.clone().unwrap_or_default())
        }),
        claim_uid: claim.and_then(|claim| claim.uid.clone()).unwrap_or_default(),
        available: phase == Some("Available") && meta.deletion_timestamp.is_none(),
        driver: csi.map(|csi| csi.driver.clone()).unwrap_or_default(),
        handle: csi.map_or_else(|| name.clone(), |csi| csi.volume_handle.clone()),
        name,
    })
}

/// Facts of a storage class. `with_capacity` are the drivers whose published capacities count.
pub fn class_facts(class: &StorageClass, with_capacity: &BTreeSet<String>) -> Result<StorageClassFacts> {
    let meta = &class.metadata;
    let name = required_name(meta).map_err(|error| error.of(object_name("storage.k8s.io/v1", "StorageClass", meta)))?;
    let topologies = class.allowed_topologies.as_ref().filter(|terms| !terms.is_empty()).map(|terms| {
        let term = |term: &k8s_openapi::api::core::v1::TopologySelectorTerm| NodeTerm {
            requirements: (term.match_label_expressions.iter().flatten())
                .map(|expression| Requirement {
                    key: expression.key.clone(),
                    operator: SelectorOperator::In,
                    values: expression.values.clone(),
                    on_name: false,
                })
                .collect(),
        };
        terms.iter().map(term).collect()
    });
    Ok(StorageClassFacts {
        uid: uid_of("StorageClass", meta),
        name,
        provisioner: class.provisioner.clone(),
        waits: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
        provisions: !class.provisioner.is_empty() && class.provisioner != NO_PROVISIONER,
        topologies,
        has_capacity: with_capacity.contains(&class.provisioner),
        default: annotation(meta, DEFAULT_CLASS).is_some_and(|value| value == "true"),
    })
}

/// Facts of a CSINode.
pub fn csi_node_facts(node: &CSINode) -> Result<CsiNodeFacts> {
    let name = required_name(&node.metadata)
        .map_err(|error| error.of(object_name("storage.k8s.io/v1", "CSINode", &node.metadata)))?;
    let limits = node.spec.drivers.iter().filter_map(|driver| {
        let count = driver.allocatable.as_ref()?.count?;
        Some((driver.name.clone(), u32::try_from(count).unwrap_or(0)))
    });
    Ok(CsiNodeFacts {
        name,
        limits: limits.collect(),
        drivers: node.spec.drivers.iter().map(|driver| driver.name.clone()).collect(),
    })
}

/// Facts of a storage capacity.
pub fn capacity_facts(capacity: &CSIStorageCapacity) -> Result<StorageCapacityFacts> {
    let fields = || -> Fields<StorageCapacityFacts> {
        Ok(StorageCapacityFacts {
            uid: uid_of("CSIStorageCapacity", &capacity.metadata),
            class: capacity.storage_class_name.clone(),
            nodes: selector("nodeTopology", capacity.node_topology.as_ref())?,
            bytes: bytes("capacity", capacity.capacity.as_ref(), false)?,
            largest_bytes: bytes("maximumVolumeSize", capacity.maximum_volume_size.as_ref(), false)?,
        })
    };
    fields().map_err(|error| error.of(object_name("storage.k8s.io/v1", "CSIStorageCapacity", &capacity.metadata)))
}

/// An object that can't be read as its kind, or can't be used.
#[derive(Debug)]
pub enum StorageError {
    /// It does not parse.
    Unreadable(serde_json::Error),
    /// It parses and is wrong.
    Unusable(ConvertError),
}

/// Objects of storage and namespaces as they come, turned into events: classes depend on what drivers say, claims on
/// the default class, and some deletions name what only the UID is known of.
#[derive(Debug, Default)]
pub struct StorageKinds {
    classes: BTreeMap<String, StorageClass>,
    drivers: BTreeMap<String, String>,
    unclassed: BTreeMap<String, PersistentVolumeClaim>,
    names: BTreeMap<String, String>,
    /// Do as the API server does for claims without a class and volumes without a phase (objects from files).
    complete: bool,
}

impl StorageKinds {
    /// The kinds: group, version, kind.
    pub const KINDS: [(&str, &str, &str); 7] = [
        ("", "v1", "Namespace"),
        ("", "v1", "PersistentVolumeClaim"),
        ("", "v1", "PersistentVolume"),
        ("storage.k8s.io", "v1", "StorageClass"),
        ("storage.k8s.io", "v1", "CSINode"),
        ("storage.k8s.io", "v1", "CSIDriver"),
        ("storage.k8s.io", "v1", "CSIStorageCapacity"),
    ];

    /// For objects from files, which no API server has completed.
    #[must_use]
    pub fn of_files() -> Self {
        Self { complete: true, ..Self::default() }
    }

    /// True for a kind that `applied` takes.
    #[must_use]
    pub fn has(kind: &str) -> bool {
        Self::KINDS.iter().any(|(_, _, known)| *known == kind)
    }

    /// What follows from an object that appeared or changed.
    pub fn applied(&mut self, kind: &str, object: &Value) -> std::result::Result<Vec<Event>, StorageError> {
        let usable = |result| result_event(result);
        match kind {
            "Namespace" => {
                let namespace: k8s_openapi::api::core::v1::Namespace = typed(object)?;
                let name = namespace.metadata.name.clone().unwrap_or_default();
                self.names.insert(uid_of("Namespace", &namespace.metadata), name.clone());
                Ok(vec![Event::NamespaceUpsert(name, namespace.metadata.labels.unwrap_or_default())])
            }
            "PersistentVolumeClaim" => {
                let claim: PersistentVolumeClaim = typed(object)?;
                let facts = claim_facts(&claim, self.default_class());
                if self.complete && claim.spec.as_ref().is_some_and(|spec| spec.storage_class_name.is_none()) {
                    self.unclassed.insert(uid_of(kind, &claim.metadata), claim);
                }
                usable(facts.map(|mut facts| {
                    facts.bound |= self.complete && facts.volume.is_some();
                    Event::ClaimUpsert(facts)
                }))
            }
            "PersistentVolume" => {
                let volume: PersistentVolume = typed(object)?;
                let no_phase = volume.status.as_ref().is_none_or(|status| status.phase.is_none());
                usable(volume_facts(&volume).map(|mut facts| {
                    facts.available |= self.complete && no_phase && facts.claim.is_none();
                    Event::VolumeUpsert(facts)
                }))
            }
            "StorageClass" => {
                let class: StorageClass = typed(object)?;
                let event = self.class_event(&class);
                self.classes.insert(uid_of(kind, &class.metadata), class);
                let mut events = usable(event)?;
                for claim in self.unclassed.values() {
                    events.extend(claim_facts(claim, self.default_class()).ok().map(Event::ClaimUpsert));
                }
                Ok(events)
            }
            "CSINode" => {
                let node: CSINode = typed(object)?;
                let facts = csi_node_facts(&node);
                if let Ok(facts) = &facts {
                    self.names.insert(uid_of(kind, &node.metadata), facts.name.clone());
                }
                usable(facts.map(Event::CsiNodeUpsert))
            }
            "CSIDriver" => {
                let driver: CSIDriver = typed(object)?;
                let uid = uid_of(kind, &driver.metadata);
                if driver.spec.storage_capacity == Some(true) {
                    self.drivers.insert(uid, driver.metadata.name.unwrap_or_default());
                } else {
                    self.drivers.remove(&uid);
                }
                Ok(self.class_events())
            }
            _ => usable(capacity_facts(&typed::<CSIStorageCapacity>(object)?).map(Event::StorageCapacityUpsert)),
        }
    }

    /// What follows from an object that is gone.
    pub fn deleted(&mut self, kind: &str, uid: &str) -> Vec<Event> {
        let uid = uid.to_owned();
        match kind {
            "Namespace" => self.names.remove(&uid).map(Event::NamespaceDelete).into_iter().collect(),
            "PersistentVolumeClaim" => {
                self.unclassed.remove(&uid);
                vec![Event::ClaimDelete(uid)]
            }
            "PersistentVolume" => vec![Event::VolumeDelete(uid)],
            "StorageClass" => {
                self.classes.remove(&uid);
                vec![Event::StorageClassDelete(uid)]
            }
            "CSINode" => self.names.remove(&uid).map(Event::CsiNodeDelete).into_iter().collect(),
            "CSIDriver" => {
                self.drivers.remove(&uid);
                self.class_events()
            }
            _ => vec![Event::StorageCapacityDelete(uid)],
        }
    }

    fn class_event(&self, class: &StorageClass) -> Result<Event> {
        let with_capacity = self.drivers.values().cloned().collect();
        class_facts(class, &with_capacity).map(Event::StorageClassUpsert)
    }

    fn class_events(&self) -> Vec<Event> {
        self.classes.values().filter_map(|class| self.class_event(class).ok()).collect()
    }

    fn default_class(&self) -> Option<&str> {
        let mut marked = self.classes.values().filter(|class| annotation(&class.metadata, DEFAULT_CLASS).is_some_and(|v| v == "true"));
        marked.next().filter(|_| self.complete).and_then(|class| class.metadata.name.as_deref())
    }
}

fn typed<T: DeserializeOwned>(object: &Value) -> std::result::Result<T, StorageError> {
    T::deserialize(object).map_err(StorageError::Unreadable)
}

fn result_event(result: Result<Event>) -> std::result::Result<Vec<Event>, StorageError> {
    result.map(|event| vec![event]).map_err(StorageError::Unusable)
}
