//! `status.placementScore` of PodGangs of Grove: 1 is the best possible placement, less is worse.

use berth_engine::facts::ObjectKey;
use berth_engine::outcome::{GangReport, GangState};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};

use super::{End, Scribe, render};
use crate::grouping::pod_gang;

impl Scribe {
    /// Writes the score of a gang that is a PodGang. One that an earlier process placed keeps what that one wrote.
    pub(super) async fn placement_score(&self, report: &GangReport) -> End {
        let ours = match &report.quality {
            Some(quality) => render::score(quality.score_millis),
            None if report.state == GangState::Pending => Value::Null,
            None => return End::Done,
        };
        let (key, uid, existing) = {
            let directory = self.directory.lock();
            let name = directory.gang(&report.uid).and_then(|entry| entry.pod_gang.clone());
            let Some(name) = name else { return End::Done };
            let key = ObjectKey::new(report.key.namespace.clone(), name);
            let Some(entry) = directory.pod_gang(&key) else { return End::Done };
            (key, entry.uid.clone(), entry.score.clone())
        };
        let known = self.last(&uid).map_or(existing, |(known, _)| known);
        if is_same(&known, &ours) {
            return End::Done;
        }
        self.count("patch_podgang_status");
        let gvk = GroupVersionKind::gvk(pod_gang::API_GROUP, pod_gang::VERSION, pod_gang::KIND);
        let resource = ApiResource::from_gvk_with_plural(&gvk, "podgangs");
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.namespace, &resource);
        let patch = json!({"metadata": {"uid": uid}, "status": {"placementScore": ours}});
        let result = api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        let end = self.ended("patch PodGang status", result.map(|_| ()));
        if end == End::Done {
            self.remember(&uid, ours);
        }
        end
    }
}

/// Whether two scores are one number: the API server may give 1 back as 1.0.
fn is_same(known: &Value, ours: &Value) -> bool {
    known == ours || known.as_f64().zip(ours.as_f64()).is_some_and(|(known, ours)| known.to_bits() == ours.to_bits())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use berth_engine::facts::Amounts;
    use berth_engine::outcome::Quality;

    use super::*;
    use crate::cluster::directory::{PodGangEntry, SharedDirectory};
    use crate::fake_api::FakeApi;
    use crate::leader::Fence;
    use crate::telemetry::Metrics;

    fn report(score_millis: Option<u32>, state: GangState) -> GangReport {
        GangReport {
            uid: "g".to_owned(),
            key: ObjectKey::new("ns", "pg-s-0-u"),
            owner: String::new(),
            queue: String::new(),
            state,
            min_member: 1,
            pods: 1,
            bound: 1,
            quality: score_millis.map(|score_millis| Quality { score_millis, ..Quality::default() }),
            reasons: Vec::new(),
            promised: std::collections::BTreeMap::new(),
            stale: None,
            preemptible: true,
            allocated: Amounts::new(),
            requested: Amounts::new(),
            warnings: Vec::new(),
        }
    }

    #[tokio::test]
    async fn the_score_is_written_when_it_changed_and_goes_with_the_placement() {
        let api = FakeApi::start(|_| (200, json!({"apiVersion": "scheduler.grove.io/v1alpha1", "kind": "PodGang", "metadata": {}}))).await;
        let directory = SharedDirectory::default();
        {
            let mut locked = directory.lock();
            locked.gang_mut("g").pod_gang = Some("s-0".to_owned());
            locked.gang_mut("other");
            let entry = PodGangEntry { uid: "pod-gang".to_owned(), score: json!(1.0) };
            assert!(locked.put_pod_gang(ObjectKey::new("ns", "s-0"), entry));
        }
        let metrics = Arc::new(Metrics::new().expect("metrics"));
        let scribe = Scribe::new(api.client.clone(), Fence::open(), metrics, directory.clone());
        scribe.placement_score(&report(Some(1_000), GangState::Placed)).await;
        scribe.placement_score(&report(None, GangState::Placed)).await;
        scribe.placement_score(&GangReport { uid: "other".to_owned(), ..report(Some(500), GangState::Placed) }).await;
        assert!(api.asked().is_empty(), "an earlier process wrote this, or nothing is to be written");
        for (score, state) in [(Some(875), GangState::Placed), (Some(875), GangState::Placed), (None, GangState::Pending)] {
            assert_eq!(scribe.placement_score(&report(score, state)).await, End::Done);
        }
        let asked = api.asked();
        let told: Vec<_> = asked.iter().map(|asked| (asked.path.as_str(), &asked.body["status"]["placementScore"])).collect();
        let path = "/apis/scheduler.grove.io/v1alpha1/namespaces/ns/podgangs/s-0/status";
        assert_eq!(told, [(path, &json!(0.875)), (path, &Value::Null)]);
        assert_eq!(asked[0].body["metadata"]["uid"], "pod-gang");
    }
}
