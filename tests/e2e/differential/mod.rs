//! Berth and the real kube-scheduler look at the same generated clusters: for every generated pod, the nodes that
//! Berth's rules accept must be the nodes that kube-scheduler accepts.
//!
//! kube-scheduler tells its answer to an extender ([`judge`]): it sends the nodes that passed all of its own rules, and
//! the extender refuses them all, so that nothing is ever bound and a cluster stands still while it is asked about.
//! Berth's answer is computed in this process from the objects that the API server stored. A difference is asked about
//! again with a new pod, because kube-scheduler may not have seen the whole cluster yet; one that stays is a failure, and
//! its seed is printed.

mod generate;
mod judge;
mod storage;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use berth::cluster::convert::storage::StorageKinds;
use berth::cluster::convert::{self, Membership};
use berth_engine::facts::Event;
use berth_engine::world::World;
use berth_harness::{ControlPlane, Options};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt, discovery};
use serde_json::{Value, json};

use generate::Generated;
use judge::Judge;

/// Clusters of one run unless `BERTH_DIFFERENTIAL_CLUSTERS` asks for more; their seeds are 1, 2, 3 and so on, or start
/// at `BERTH_DIFFERENTIAL_SEED`.
const CLUSTERS: u64 = 20;
/// Requests in flight while a cluster is made.
const IN_FLIGHT: usize = 32;
/// A difference that outlives this much asking is one.
const PATIENCE: Duration = Duration::from_secs(10);

struct Arena {
    client: Client,
    namespace: String,
    judge: Judge,
}

/// One pod that the two disagree about.
struct Difference {
    pod: Pod,
    berth: BTreeSet<String>,
    kube: BTreeSet<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn berth_accepts_the_nodes_that_kube_scheduler_accepts() {
    let judge = Judge::start().await;
    let options = Options { scheduler: true, scheduler_extender: Some(judge.url()), ..Options::default() };
    let plane = ControlPlane::start(options).await.unwrap();
    let client = plane.client().await.unwrap();
    let namespace = plane.namespace(&client, "differential").await.unwrap();
    let arena = Arena { client, namespace, judge };
    arena.create_classes().await;

    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    let (first, count) = (number("BERTH_DIFFERENTIAL_SEED", 1), number("BERTH_DIFFERENTIAL_CLUSTERS", CLUSTERS));
    let started = Instant::now();
    let (mut pods, mut somewhere, mut refused, mut failures) = (0, 0, 0, Vec::new());
    for seed in first..first + count {
        let round = arena.round(seed).await;
        pods += round.pods;
        somewhere += round.somewhere;
        refused += round.refused;
        for difference in round.differences {
            failures.push(format!(
                "seed {seed}: Berth accepts {:?}, kube-scheduler accepts {:?}, for\n{:#}",
                difference.berth,
                difference.kube,
                serde_json::to_value(&difference.pod.spec).unwrap(),
            ));
        }
    }
    eprintln!(
        "{pods} pods over {count} clusters in {:.0} s: {somewhere} fit somewhere, {refused} pairs of pod and node were refused",
        started.elapsed().as_secs_f64(),
    );
    assert!(failures.is_empty(), "{} differences\n{}", failures.len(), failures.join("\n\n"));
    // Rules that refuse everything, or nothing, would prove nothing.
    assert!(pods as u64 > count * generate::CANDIDATES * 8 / 10, "too many generated pods are invalid");
    assert!(somewhere * 10 > pods && refused > pods, "the generated clusters are too easy or too hard");
}

#[derive(Default)]
struct Round {
    pods: usize,
    somewhere: usize,
    refused: usize,
    differences: Vec<Difference>,
}

impl Arena {
    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Classes that the generated pods name.
    async fn create_classes(&self) {
        for object in generate::classes() {
            self.create(&object).await;
        }
    }

    async fn create(&self, object: &Value) {
        let api = self.api(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap()).await;
        let created = api.create(&PostParams::default(), &serde_json::from_value(object.clone()).unwrap()).await;
        if let Err(error) = created {
            panic!("{error}: {object}");
        }
    }

    /// Objects of a kind: in the namespace of this test, or of the cluster.
    async fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let (resource, capabilities) = discovery::pinned_kind(&self.client, &gvk).await.unwrap();
        match capabilities.scope {
            discovery::Scope::Cluster => Api::all_with(self.client.clone(), &resource),
            discovery::Scope::Namespaced => Api::namespaced_with(self.client.clone(), &self.namespace, &resource),
        }
    }

    async fn round(&self, seed: u64) -> Round {
        let generated = generate::cluster(seed, &self.namespace);
        self.build(&generated).await;
        let mut open = self.valid(&generated.candidates).await;
        let mut round = Round { pods: open.len(), ..Round::default() };
        let started = Instant::now();
        for attempt in 0.. {
            let asked = self.ask(&open, attempt).await;
            let mut again = Vec::new();
            let late = started.elapsed() > PATIENCE;
            let berth = self.berth(&asked).await;
            let n_nodes = generated.nodes.len();
            for ((candidate, pod), berth) in open.into_iter().zip(asked).zip(berth) {
                let kube = self.judge.accepted(&pod.uid().unwrap());
                if kube == berth {
                    round.somewhere += usize::from(!kube.is_empty());
                    round.refused += n_nodes - kube.len().min(n_nodes);
                } else if late {
                    round.differences.push(Difference { pod, berth, kube });
                } else {
                    again.push(candidate);
                }
            }
            open = again;
            if open.is_empty() {
                break;
            }
        }
        self.clear().await;
        round
    }

    /// Creates the nodes and what already runs on them.
    async fn build(&self, generated: &Generated) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let nodes = &nodes;
        stream::iter(&generated.nodes)
            .map(|node| async move { nodes.create(&PostParams::default(), &serde_json::from_value(node.clone()).unwrap()).await })
            .buffer_unordered(IN_FLIGHT)
            .try_collect::<Vec<_>>()
            .await
            .unwrap();
        stream::iter(&generated.storage).for_each_concurrent(IN_FLIGHT, |object| self.create(object)).await;
        let pods = self.pods();
        let pods = &pods;
        stream::iter(&generated.placed)
            .for_each_concurrent(IN_FLIGHT, |placed| async move {
                let pod: Pod = serde_json::from_value(placed.pod.clone()).unwrap();
                match pods.create(&PostParams::default(), &pod).await {
                    Ok(_) => {}
                    Err(kube::Error::Api(status)) if status.code == 422 || status.code == 403 => return,
                    Err(error) => panic!("{error}: {}", placed.pod),
                }
                if placed.finished {
                    let patch = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
                    pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await.unwrap();
                }
            })
            .await;
    }

    /// Those that the API server takes: the dice may, say, ask for less as a pod than as its containers.
    async fn valid(&self, candidates: &[Value]) -> Vec<Value> {
        let (pods, dry) = (self.pods(), PostParams { dry_run: true, ..PostParams::default() });
        let (pods, dry) = (&pods, &dry);
        let tried = stream::iter(candidates).map(|candidate| async move {
            match pods.create(dry, &serde_json::from_value(candidate.clone()).unwrap()).await {
                Ok(_) => Some(candidate.clone()),
                Err(kube::Error::Api(status)) if status.code == 422 || status.code == 403 => None,
                Err(error) => panic!("{error}: {candidate}"),
            }
        });
        tried.buffered(IN_FLIGHT).filter_map(|candidate| async move { candidate }).collect().await
    }

    /// Creates the pods and waits until kube-scheduler has given its verdict on each.
    async fn ask(&self, candidates: &[Value], attempt: u32) -> Vec<Pod> {
        let pods = self.pods();
        let pods = &pods;
        let created: Vec<Pod> = stream::iter(candidates)
            .map(|candidate| async move {
                let mut pod: Pod = serde_json::from_value(candidate.clone()).unwrap();
                pod.metadata.name = Some(format!("{}-{attempt}", pod.name_any()));
                pods.create(&PostParams::default(), &pod).await.unwrap()
            })
            .buffered(IN_FLIGHT)
            .collect()
            .await;
        let asked: BTreeSet<String> = created.iter().filter_map(ResourceExt::uid).collect();
        let asked = &asked;
        berth_harness::wait_for("verdicts of kube-scheduler", Duration::from_secs(60), || async move {
            let seen = pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
            let judged = seen.iter().filter(|pod| asked.contains(&pod.uid().unwrap_or_default()) && has_verdict(pod)).count();
            if judged == asked.len() { Ok(Some(())) } else { Err(format!("{judged} of {} pods have one", asked.len())) }
        })
        .await
        .unwrap();
        created
    }

    /// The nodes that Berth accepts for each of these pods, from what the API server stores now.
    async fn berth(&self, asked: &[Pod]) -> Vec<BTreeSet<String>> {
        let mut world = World::new();
        let mut tell = |event| world.apply(event, 0).unwrap();
        let nodes: Api<Node> = Api::all(self.client.clone());
        for node in nodes.list(&ListParams::default()).await.unwrap() {
            tell(Event::NodeUpsert(convert::node_facts(&node).unwrap()));
        }
        let mut storage = StorageKinds::default();
        for (group, version, kind) in StorageKinds::KINDS {
            let api = self.api(&format!("{group}/{version}"), kind).await;
            for object in api.list(&ListParams::default()).await.unwrap() {
                let object = serde_json::to_value(object).unwrap();
                storage.applied(kind, &object).unwrap().into_iter().for_each(&mut tell);
            }
        }
        let facts = |pod: &Pod| convert::pod_facts(pod, &Membership::default(), "default-scheduler").unwrap();
        for pod in self.pods().list(&ListParams::default()).await.unwrap() {
            tell(Event::PodUpsert(facts(&pod)));
        }
        let mut unsupported: BTreeMap<String, usize> = BTreeMap::new();
        for pod in asked {
            for key in facts(pod).shape.unsupported {
                *unsupported.entry(key).or_default() += 1;
            }
        }
        assert!(unsupported.is_empty(), "generated pods use what Berth does not support: {unsupported:?}");
        asked.iter().map(|pod| world.feasible_nodes(&pod.uid().unwrap()).unwrap()).collect()
    }

    /// Removes everything that the round made.
    async fn clear(&self) {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.pods().delete_collection(&now, &ListParams::default()).await.unwrap();
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.delete_collection(&now, &ListParams::default()).await.unwrap();
        for (version, kind) in [
            ("v1", "PersistentVolumeClaim"),
            ("v1", "PersistentVolume"),
            ("storage.k8s.io/v1", "CSINode"),
            ("storage.k8s.io/v1", "CSIStorageCapacity"),
        ] {
            self.api(version, kind).await.delete_collection(&now, &ListParams::default()).await.unwrap();
        }
    }
}

fn has_verdict(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
}
