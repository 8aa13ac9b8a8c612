//! Objects without what no decision reads.

use serde_json::{Map, Value, json};

/// Parts of a pod's spec that decide where it fits, and its place.
const POD_SPEC: [&str; 16] = [
    "schedulerName", "nodeName", "priorityClassName", "priority", "preemptionPolicy", "nodeSelector", "affinity", "tolerations",
    "topologySpreadConstraints", "schedulingGates", "schedulingGroup", "runtimeClassName", "overhead", "hostNetwork", "resources",
    "resourceClaims",
];

/// Parts of a container that room depends on.
const CONTAINER: [&str; 4] = ["name", "resources", "ports", "restartPolicy"];

/// Prefixes of annotations that decisions or controllers' structure read; all others are left out.
const ANNOTATIONS: [&str; 20] = [
    "kai.scheduler/", "berth.scheduler/", "runai/", "run.ai/", "pod-group-name", "gpu-", "mps", "batch.kubernetes.io/", "volume.kubernetes.io/",
    "volume.beta.kubernetes.io/", "pv.kubernetes.io/", "storageclass.kubernetes.io/", "leaderworkerset.sigs.k8s.io/",
    "leaderworkerset.x-k8s.io/", "jobset.sigs.k8s.io/", "alpha.jobset.sigs.k8s.io/", "scheduling.k8s.io/", "scheduling.x-k8s.io/", "kubernetes.io/config.mirror",
    "user",
];

/// Keys under which free text, programs or secrets stand, wherever they are: never kept.
const NEVER: [&str; 25] = [
    "env", "envFrom", "command", "args", "image", "imagePullSecrets", "managedFields", "lifecycle", "livenessProbe", "readinessProbe",
    "startupProbe", "data", "stringData", "binaryData", "script", "source", "entrypoint", "runtimeEnvYAML", "securityContext",
    "serviceAccountName", "serviceAccount", "hostAliases", "message", "conditions", "usageDBConfig",
];

/// The object without what no decision reads. Kinds that pods are made from keep their structure, numbers and names.
#[must_use]
pub fn stripped(object: &Value) -> Value {
    Cut { is_kept: |_| false }.object(object)
}

/// The same, with the annotations whose keys are wanted besides those that decisions read.
#[must_use]
pub fn stripped_but(object: &Value, is_kept: fn(&str) -> bool) -> Value {
    Cut { is_kept }.object(object)
}

/// What is kept.
#[derive(Clone, Copy)]
struct Cut {
    /// Annotations besides those that decisions read.
    is_kept: fn(&str) -> bool,
}

impl Cut {
    fn object(self, object: &Value) -> Value {
        let mut kept = json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": self.metadata(&object["metadata"])});
        let kind = object["kind"].as_str().unwrap_or_default();
        let Value::Object(map) = &mut kept else { return kept };
        match kind {
            "Pod" => {
                map.insert("spec".to_owned(), self.pod_spec(&object["spec"]));
                map.insert("status".to_owned(), picked(&object["status"], &["phase", "nominatedNodeName", "startTime", "resize"]));
            }
            "Node" => {
                map.insert("spec".to_owned(), picked(&object["spec"], &["unschedulable", "taints"]));
                let mut status = picked(&object["status"], &["allocatable", "capacity"]);
                let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
                status["conditions"] = conditions.map(|condition| picked(condition, &["type", "status"])).collect();
                map.insert("status".to_owned(), status);
            }
            _ => {
                let rest = object.as_object().into_iter().flatten().filter(|(key, _)| !["apiVersion", "kind", "metadata", "status"].contains(&key.as_str()));
                for (key, value) in rest {
                    if let Some(value) = self.structure(key, value) {
                        map.insert(key.clone(), value);
                    }
                }
                if let Value::Object(status) = &object["status"] {
                    let status = picked(&Value::Object(status.clone()), &["phase", "capacity", "replicas", "podGroupName", "disruptionsAllowed"]);
                    map.insert("status".to_owned(), status);
                }
            }
        }
        kept
    }

    fn metadata(self, metadata: &Value) -> Value {
        let mut kept = picked(metadata, &["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "labels", "ownerReferences", "generateName"]);
        let annotations = metadata["annotations"].as_object().into_iter().flatten();
        let annotations: Map<String, Value> = annotations
            .filter(|(key, _)| (ANNOTATIONS.iter().any(|prefix| key.starts_with(prefix)) || (self.is_kept)(key)) && !key.contains("last-applied"))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if !annotations.is_empty() {
            kept["annotations"] = Value::Object(annotations);
        }
        kept
    }

    fn pod_spec(self, spec: &Value) -> Value {
        let mut kept = picked(spec, &POD_SPEC);
        for key in ["containers", "initContainers"] {
            if let Some(Value::Array(containers)) = spec.get(key) {
                kept[key] = containers.iter().map(container).collect();
            }
        }
        if let Some(Value::Array(volumes)) = spec.get("volumes") {
            let of_claims = |volume: &Value| match (volume.get("persistentVolumeClaim"), volume.get("ephemeral")) {
                (Some(claim), _) => Some(json!({"name": volume["name"], "persistentVolumeClaim": picked(claim, &["claimName", "readOnly"])})),
                (None, Some(ephemeral)) => {
                    let template = &ephemeral["volumeClaimTemplate"];
                    let template = json!({"metadata": self.metadata(&template["metadata"]), "spec": self.structure("spec", &template["spec"])});
                    Some(json!({"name": volume["name"], "ephemeral": {"volumeClaimTemplate": template}}))
                }
                (None, None) => None,
            };
            kept["volumes"] = volumes.iter().filter_map(of_claims).collect();
        }
        kept
    }

    /// The same at any depth of a workload: pod templates as pods, everything else without the keys that are never kept.
    fn structure(self, key: &str, value: &Value) -> Option<Value> {
        if NEVER.contains(&key) {
            return None;
        }
        Some(match value {
            Value::Object(map) if map.get("containers").is_some_and(Value::is_array) => self.pod_spec(value),
            Value::Object(_) if key == "metadata" => self.metadata(value),
            Value::Object(map) => {
                Value::Object(map.iter().filter_map(|(key, value)| Some((key.clone(), self.structure(key, value)?))).collect())
            }
            Value::Array(list) => Value::Array(list.iter().filter_map(|value| self.structure("", value)).collect()),
            other => other.clone(),
        })
    }
}

fn picked(value: &Value, keys: &[&str]) -> Value {
    let entries = keys.iter().filter_map(|key| Some(((*key).to_owned(), value.get(*key)?.clone())));
    Value::Object(entries.collect::<Map<String, Value>>())
}

fn container(container: &Value) -> Value {
    let mut kept = picked(container, &CONTAINER);
    if let Some(Value::Array(ports)) = container.get("ports") {
        kept["ports"] = ports.iter().map(|port| picked(port, &["containerPort", "hostPort", "hostIP", "protocol"])).collect();
    }
    kept
}
