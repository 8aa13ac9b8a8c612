use serde_json::{Value, json};

use super::{Redactor, stripped};

/// A pod with a secret in every place that could hold one, and names that must not be seen.
fn planted() -> Vec<Value> {
    let template = json!({
        "metadata": {"labels": {"team": "planted-team"}, "annotations": {"note": "planted-secret-note"}},
        "spec": {
            "schedulerName": "kai-scheduler",
            "serviceAccountName": "planted-secret-account",
            "imagePullSecrets": [{"name": "planted-secret-pull"}],
            "nodeSelector": {"planted.example/pool": "planted-pool"},
            "containers": [{
                "name": "planted-container", "image": "planted-secret-image", "command": ["planted-secret-command"], "args": ["--t=planted-secret-arg"],
                "env": [{"name": "TOKEN", "value": "planted-secret-env"}],
                "envFrom": [{"secretRef": {"name": "planted-secret-ref"}}],
                "resources": {"limits": {"nvidia.com/gpu": 1, "planted.example/card": "2"}},
                "livenessProbe": {"exec": {"command": ["planted-secret-probe"]}},
            }],
            "volumes": [{"name": "s", "secret": {"secretName": "planted-secret-volume"}}, {"name": "planted-v", "persistentVolumeClaim": {"claimName": "planted-claim"}}],
        },
    });
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "planted-job-0", "namespace": "planted-space", "uid": "planted-uid",
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "planted-secret-applied", "pod-group-name": "planted-group",
                "kai.scheduler/topology-required-placement": "planted.example/rack"
            },
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "planted-job", "uid": "planted-job-uid", "controller": true}],
            "managedFields": [{"manager": "planted-secret-manager"}],
        },
        "spec": template["spec"],
        "status": {"phase": "Running", "message": "planted-secret-message"},
    });
    pod["metadata"]["labels"] = template["metadata"]["labels"].clone();
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "planted-job", "namespace": "planted-space", "uid": "planted-job-uid"},
        "spec": {"parallelism": 2, "completionMode": "Indexed", "template": template},
    });
    let ray = json!({
        "apiVersion": "ray.io/v1", "kind": "RayJob",
        "metadata": {"name": "planted-ray", "namespace": "planted-space", "uid": "planted-ray-uid"},
        "spec": {"entrypoint": "planted-secret-entry", "runtimeEnvYAML": "planted-secret-yaml", "rayClusterSpec": {"headGroupSpec": {"template": job["spec"]["template"]}}},
    });
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "planted-node", "uid": "n", "labels": {"kubernetes.io/hostname": "planted-node", "planted.example/rack": "planted-rack-7"}},
        "status": {"allocatable": {"nvidia.com/gpu": "8", "planted.example/card": "4"}, "addresses": [{"address": "planted-secret-address"}]},
    });
    let topology = json!({
        "apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "planted-topology"},
        "spec": {"levels": [{"nodeLabel": "planted.example/rack"}, {"nodeLabel": "kubernetes.io/hostname"}]},
    });
    vec![pod, job, ray, node, topology]
}

#[test]
fn secrets_never_come_in() {
    let text: String = planted().iter().map(|object| stripped(object).to_string()).collect();
    assert!(!text.contains("secret"), "{text}");
    for kept in ["planted-job", "planted-claim", "planted.example/rack", "nvidia.com/gpu", "\"parallelism\":2"] {
        assert!(text.contains(kept), "{kept}: {text}");
    }
}

#[test]
fn no_planted_name_stays_and_what_referred_to_another_still_does() {
    let redactor = Redactor::new();
    let objects: Vec<Value> = planted().iter().map(|object| redactor.redacted(&stripped(object))).collect();
    let text: String = objects.iter().map(Value::to_string).collect();
    assert!(!text.contains("planted") && !text.contains("example"), "{text}");
    let [pod, job, _, node, topology] = objects.as_slice() else { unreachable!() };
    assert_eq!(pod["metadata"]["ownerReferences"][0]["name"], job["metadata"]["name"]);
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], job["metadata"]["uid"]);
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], node["metadata"]["name"]);
    let level = topology["spec"]["levels"][0]["nodeLabel"].as_str().unwrap();
    assert!(node["metadata"]["labels"][level].as_str().unwrap().ends_with("-7"), "{node}");
    assert_eq!(pod["metadata"]["annotations"]["kai.scheduler/topology-required-placement"], level);
    let card = node["status"]["allocatable"].as_object().unwrap().keys().find(|key| *key != "nvidia.com/gpu").unwrap();
    assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"][card], "2");
    // Another file has other words.
    assert_ne!(Redactor::new().redacted(&planted()[3])["metadata"]["name"], node["metadata"]["name"]);
}

#[test]
fn keys_that_a_lint_looks_at_stay_also_in_templates() {
    let slip = "kai.schedular/topology";
    let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "annotations": {"note": "planted"}}, "spec": {"template": {"metadata": {}}}});
    job["metadata"]["annotations"][slip] = json!("net");
    job["spec"]["template"]["metadata"]["annotations"] = json!({"note": "planted"});
    job["spec"]["template"]["metadata"]["annotations"][slip] = json!("net");
    let kept = super::stripped_but(&job, crate::lint::is_looked_at);
    for annotations in [&kept["metadata"]["annotations"], &kept["spec"]["template"]["metadata"]["annotations"]] {
        assert_eq!(annotations, &json!({"kai.schedular/topology": "net"}));
    }
    assert!(stripped(&job)["metadata"]["annotations"].is_null());
}
