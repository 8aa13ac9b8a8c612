//! Node pools: what belongs to another one is not told, and goes when it moves there.

use super::*;
use crate::cluster::pool::NodePool;

/// Names of what the engine is told of, and what it is told to forget.
fn told(effects: Vec<Effect>) -> Vec<String> {
    let name = |effect: Effect| match effect {
        Effect::Engine(Event::NodeUpsert(facts)) => Some(format!("node {}", facts.name)),
        Effect::Engine(Event::NodeDelete(uid)) => Some(format!("no node {uid}")),
        Effect::Engine(Event::QueueUpsert(facts)) => Some(format!("queue {}", facts.name)),
        Effect::Engine(Event::QueueDelete(uid)) => Some(format!("no queue {uid}")),
        Effect::Engine(Event::GangUpsert(facts)) => Some(format!("gang {}", facts.key.name)),
        Effect::Engine(Event::GangDelete(uid)) => Some(format!("no gang {uid}")),
        Effect::CreatePodGroup(key, _) => Some(format!("create {}", key.name)),
        _ => None,
    };
    effects.into_iter().filter_map(name).collect()
}

fn labelled(mut object: Value, pool: Option<&str>) -> Value {
    object["metadata"]["labels"] = pool.map_or(json!({}), |pool| json!({"pool": pool}));
    object
}

#[test]
fn nodes_queues_and_pod_groups_of_other_pools_are_not_told() {
    let mut store = store().node_pool(NodePool::new("pool", Some("blue")));
    end_lists(&mut store);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "n"}, "status": {"allocatable": {"cpu": "1"}}});
    let queue = json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q", "uid": "q"}, "spec": {"resources": {}}});
    let group = json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": "g", "namespace": "ns", "uid": "g"}, "spec": {"queue": "q"}});
    let kinds = [
        (Gvk::new("", "v1", "Node"), node, "node n", "no node n"),
        (Gvk::new("scheduling.run.ai", "v2", "Queue"), queue, "queue q", "no queue q"),
        (Gvk::new("scheduling.run.ai", "v2alpha2", "PodGroup"), group, "gang g", "no gang g"),
    ];
    let none: [&str; 0] = [];
    for (gvk, object, comes, goes) in kinds {
        let mut tell = |pool| told(apply(&mut store, gvk.clone(), labelled(object.clone(), pool)));
        assert_eq!(tell(None), none, "{comes}");
        assert_eq!(tell(Some("red")), none, "{comes}");
        assert_eq!(tell(Some("blue")), [comes]);
        assert_eq!(tell(Some("red")), [goes]);
        assert_eq!(tell(None), none, "{comes}");
    }
}

#[test]
fn a_workload_belongs_to_the_pool_of_its_pods() {
    let mut store = store().node_pool(NodePool::new("pool", Some("blue")));
    end_lists(&mut store);
    apply(&mut store, pod_kind(), labelled(pod("a", None), Some("red")));
    store.apply(Change::ListStarted(job_kind()), 1_000);
    store.apply(Change::Listed(job_kind(), Box::new(job("1"))), 1_000);
    let none: [&str; 0] = [];
    assert_eq!(told(store.apply(Change::ListEnded(job_kind()), 1_000)), none, "no PodGroup is made for it");
    let moved = told(apply(&mut store, pod_kind(), labelled(pod("a", None), Some("blue"))));
    assert!(moved.iter().any(|what| what.starts_with("gang pg-train")) && moved.iter().any(|what| what.starts_with("create pg-train")), "{moved:?}");
}
