//! The control plane itself: it starts, runs pods and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "unwrapping is a statement in tests")]

use std::path::Path;
use std::time::{Duration, Instant};

use berth_harness::{ControlPlane, NodeSpec, Options, wait_for};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);

fn alive(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

fn pod(name: &str, annotations: &serde_json::Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"schedulerName": "by-hand", "containers": [{"name": "main", "image": "none"}]},
    }))
    .unwrap()
}

async fn bind(client: &Client, namespace: &str, pod: &str, node: &str) {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": pod, "namespace": namespace},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let _: serde_json::Value = pods
        .create_subresource("binding", pod, &PostParams::default(), &binding)
        .await
        .unwrap();
}

async fn phase(pods: &Api<Pod>, name: &str, wanted: &str) -> Pod {
    wait_for(&format!("pod {name} to be {wanted}"), SOON, || async {
        let pod = pods.get(name).await.map_err(|error| error.to_string())?;
        match pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref())
        {
            Some(phase) if phase == wanted => Ok(Some(pod)),
            other => Err(format!("it is {other:?}")),
        }
    })
    .await
    .unwrap()
}

async fn pods_run(client: &Client, namespace: &str) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    for (name, annotations, wanted) in [
        ("runs", json!({}), "Running"),
        (
            "completes",
            json!({"berth.test/complete": "true"}),
            "Succeeded",
        ),
        ("fails", json!({"berth.test/fail": "true"}), "Failed"),
    ] {
        pods.create(&PostParams::default(), &pod(name, &annotations))
            .await
            .unwrap();
        bind(client, namespace, name, "node-0").await;
        let conditions = phase(&pods, name, wanted)
            .await
            .status
            .and_then(|status| status.conditions);
        let scheduled = conditions
            .iter()
            .flatten()
            .find(|condition| condition.type_ == "PodScheduled");
        assert_eq!(
            scheduled.map(|condition| condition.status.as_str()),
            Some("True"),
            "{name}: {conditions:?}"
        );
    }
    pods.delete("runs", &Default::default()).await.unwrap();
    wait_for("the deleted pod to go", SOON, || async {
        Ok::<_, kube::Error>(pods.get_opt("runs").await?.is_none().then_some(()))
    })
    .await
    .unwrap();
}

async fn job_makes_pods(client: &Client, namespace: &str) {
    let job: Job = serde_json::from_value(json!({
        "metadata": {"name": "two"},
        "spec": {"parallelism": 2, "completions": 2, "template": {
            "metadata": {"annotations": {"berth.test/complete": "true"}},
            "spec": {
                "schedulerName": "by-hand", "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "none"}],
            },
        }},
    }))
    .unwrap();
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    jobs.create(&PostParams::default(), &job).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let labelled = ListParams::default().labels("batch.kubernetes.io/job-name=two");
    let made = wait_for("the Job's pods", SOON, || async {
        let list = pods.list(&labelled).await?;
        Ok::<_, kube::Error>((list.items.len() == 2).then_some(list.items))
    })
    .await
    .unwrap();
    for pod in made {
        bind(
            client,
            namespace,
            pod.metadata.name.as_deref().unwrap(),
            "node-1",
        )
        .await;
    }
    wait_for("the Job to complete", SOON, || async {
        let job = jobs.get("two").await?;
        Ok::<_, kube::Error>(
            (job.status.and_then(|status| status.succeeded) == Some(2)).then_some(()),
        )
    })
    .await
    .unwrap();
}

async fn crds_are_served(plane: &ControlPlane, client: &Client, dir: &Path) {
    let crd = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.berth.test}
spec:
  group: berth.test
  scope: Namespaced
  names: {kind: Thing, plural: things, singular: thing}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join("things.yaml"), crd).unwrap();
    assert_eq!(
        plane.apply_crds(client, dir).await.unwrap(),
        ["things.berth.test"]
    );
}

#[tokio::test]
async fn starts_runs_and_leaves_nothing() {
    let start = Instant::now();
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    println!("started in {:?}", start.elapsed());
    let client = plane.client().await.unwrap();
    assert_eq!(
        client.apiserver_version().await.unwrap().git_version,
        "v1.36.3"
    );
    let dir = plane.kubeconfig_path().parent().unwrap().to_path_buf();
    let nodes = (0..3)
        .map(|n| NodeSpec::new(format!("node-{n}")).label("zone", "a"))
        .collect();
    plane.create_nodes(&client, nodes).await.unwrap();
    println!("nodes ready after {:?}", start.elapsed());
    let namespace = plane.namespace(&client, "start").await.unwrap();
    assert_ne!(namespace, plane.namespace(&client, "start").await.unwrap());
    pods_run(&client, &namespace).await;
    job_makes_pods(&client, &namespace).await;
    crds_are_served(&plane, &client, &dir.join("crds")).await;
    let counts = plane.request_counts(&client).await.unwrap();
    let bindings = counts
        .iter()
        .filter(|count| count.subresource == "binding" && count.code == "201");
    assert_eq!(bindings.map(|count| count.count).sum::<u64>(), 5);

    println!("used until {:?}", start.elapsed());
    let pids = plane.pids();
    assert!(pids.iter().all(|(_, pid)| alive(*pid)));
    let start = Instant::now();
    plane.stop().await;
    println!("stopped in {:?}", start.elapsed());
    assert!(pids.iter().all(|(_, pid)| !alive(*pid)), "{pids:?}");
    assert!(!dir.exists());
}
