//! The collector of an InfiniBand fabric, as data: a CronJob of two containers that know as little of each other as they can.
//!
//! The first runs `ibnetdiscover`, which has to be privileged, and has no token of the API server: it leaves its dump in a
//! volume of the pod. The second has a token and no privilege at all: it checks the dump and writes it into one ConfigMap,
//! which is all that its account may do. `berth topology run` mounts that ConfigMap.

use serde_json::{Value, json};

use crate::rbac::{granted, only, rule};

/// The key of the ConfigMap under which the dump stands, compressed.
pub const KEY: &str = "dump.gz";

/// What to make the manifest for.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// Namespace of everything.
    pub namespace: &'a str,
    /// Name of the CronJob and its account: one for each fabric.
    pub name: &'a str,
    /// Name of the ConfigMap.
    pub config_map: &'a str,
    /// Image with `ibnetdiscover`.
    pub tools_image: &'a str,
    /// Image with `berth`.
    pub image: &'a str,
    /// When, as cron writes it.
    pub schedule: &'a str,
    /// Labels of the nodes that are on the fabric.
    pub node_selector: &'a [(String, String)],
    /// The adapter and its port, where the first one is not on the fabric: `mlx5_4`, or `mlx5_4:1`.
    pub adapter: Option<&'a str>,
}

/// The objects to apply.
#[must_use]
pub fn manifests(options: &Options<'_>) -> Vec<Value> {
    let Options { namespace, name, config_map, .. } = *options;
    let own = json!({"name": name, "namespace": namespace});
    let subjects = json!([{"kind": "ServiceAccount", "name": name, "namespace": namespace}]);
    let maps = |verbs: &[&str]| rule("", &["configmaps"], verbs);
    // What is created has no name yet, as far as rules are concerned.
    let [role, binding] = granted("Role", name, Some(namespace), &[maps(&["create"]), only(maps(&["patch"]), config_map)], &subjects);
    vec![
        // No pod of this account gets a token unasked.
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": own, "automountServiceAccountToken": false}),
        role,
        binding,
        json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": own,
            "spec": {
                "schedule": options.schedule, "concurrencyPolicy": "Forbid", "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1,
                "jobTemplate": {"spec": {
                    "backoffLimit": 1, "activeDeadlineSeconds": 600,
                    "template": {"metadata": {"labels": {"app.kubernetes.io/name": name}}, "spec": pod(options)},
                }},
            },
        }),
    ]
}

fn pod(options: &Options<'_>) -> Value {
    let mut command = vec!["ibnetdiscover".to_owned()];
    if let Some(adapter) = options.adapter {
        let (adapter, port) = adapter.split_once(':').unwrap_or((adapter, "1"));
        command.extend(["--Ca".to_owned(), adapter.to_owned(), "--Port".to_owned(), port.to_owned()]);
    }
    let selector: serde_json::Map<String, Value> = options.node_selector.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
    let token = "/var/run/secrets/kubernetes.io/serviceaccount";
    json!({
        "restartPolicy": "Never", "serviceAccountName": options.name, "automountServiceAccountToken": false, "enableServiceLinks": false,
        "nodeSelector": selector,
        "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
        "initContainers": [{
            "name": "ibnetdiscover", "image": options.tools_image,
            // Arguments, not text for a shell: nothing in them is read twice.
            "command": ["sh", "-c", "exec \"$@\" > /dump/dump.txt", "sh"], "args": command,
            "securityContext": {"privileged": true, "runAsUser": 0, "readOnlyRootFilesystem": true},
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
            "volumeMounts": [{"name": "dump", "mountPath": "/dump"}, {"name": "devices", "mountPath": "/dev/infiniband"}],
        }],
        "containers": [{
            "name": "write", "image": options.image,
            "args": ["topology", "collect", "--dump", "/dump/dump.txt", "--config-map", options.config_map, "--namespace", options.namespace],
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65532, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
            },
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
            "volumeMounts": [{"name": "dump", "mountPath": "/dump", "readOnly": true}, {"name": "token", "mountPath": token, "readOnly": true}],
        }],
        "volumes": [
            {"name": "dump", "emptyDir": {"sizeLimit": "256Mi"}},
            {"name": "devices", "hostPath": {"path": "/dev/infiniband", "type": "Directory"}},
            // What automounting would bring, for the container that needs it alone.
            {"name": "token", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
            ]}},
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options<'a>(adapter: Option<&'a str>, selector: &'a [(String, String)]) -> Options<'a> {
        Options { namespace: "ns", name: "collector", config_map: "fabric", tools_image: "tools", image: "berth", schedule: "0 * * * *", node_selector: selector, adapter }
    }

    #[test]
    fn the_privileged_container_has_no_token_and_the_other_no_privilege() {
        let manifests = manifests(&options(Some("mlx5_4:2"), &[("ib".to_owned(), "yes".to_owned())]));
        let pod = &manifests[3]["spec"]["jobTemplate"]["spec"]["template"]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false);
        let mounts = |container: &Value| container["volumeMounts"].as_array().map(|mounts| mounts.iter().map(|mount| mount["name"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>());
        let (privileged, plain) = (&pod["initContainers"][0], &pod["containers"][0]);
        assert_eq!((&privileged["securityContext"]["privileged"], mounts(privileged)), (&json!(true), Some(vec!["dump".to_owned(), "devices".to_owned()])));
        assert_eq!(mounts(plain), Some(vec!["dump".to_owned(), "token".to_owned()]));
        assert_eq!((&plain["securityContext"]["runAsNonRoot"], &plain["securityContext"]["privileged"]), (&json!(true), &Value::Null));
        assert_eq!(privileged["args"], json!(["ibnetdiscover", "--Ca", "mlx5_4", "--Port", "2"]));
        assert_eq!(pod["nodeSelector"], json!({"ib": "yes"}));
        let rules = &manifests[1]["rules"];
        assert_eq!(rules, &json!([
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"], "resourceNames": ["fabric"]},
        ]));
        assert!(manifests.iter().all(|object| object["kind"] != "ClusterRole"));
    }
}
