//! The annotation that says since when a gang runs below its minimum: a new process goes on counting from there, and KAI
//! Scheduler's tools read it.

use berth_api::keys;
use berth_engine::outcome::GangReport;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{End, Scribe};

impl Scribe {
    /// Writes the moment, or takes it away.
    pub(super) async fn stale_note(&self, report: &GangReport, object_uid: &str) -> End {
        let ours = report.stale.as_ref().and_then(|stale| moment(stale.since));
        let existing = {
            let directory = self.directory.lock();
            directory.gang(&report.uid).and_then(|entry| entry.stale_note.clone())
        };
        let told = format!("{object_uid}/stale");
        let known = self.last(&told).map_or_else(|| json!(existing), |(known, _)| known);
        if known == json!(ours) {
            return End::Done;
        }
        self.count("patch_podgroup");
        let patch = json!({"metadata": {"uid": object_uid, "annotations": {keys::STALE_TIMESTAMP: ours}}});
        let api = self.pod_groups(&report.key.namespace);
        let result = api.patch(&report.key.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        let end = self.ended("patch PodGroup", result.map(|_| ()));
        if end == End::Done {
            self.remember(&told, ours.map_or(Value::Null, Value::String));
        }
        end
    }
}

/// A moment as RFC 3339 in UTC, in whole seconds as KAI Scheduler writes it; rounded down, so that nobody waits longer.
fn moment(millis: i64) -> Option<String> {
    Timestamp::from_second(millis.div_euclid(1_000)).ok().map(|moment| moment.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use berth_engine::facts::{Amounts, ObjectKey};
    use berth_engine::outcome::{GangState, Stale};

    use super::*;
    use crate::cluster::directory::SharedDirectory;
    use crate::fake_api::FakeApi;
    use crate::leader::Fence;
    use crate::telemetry::Metrics;

    #[tokio::test]
    async fn the_moment_is_written_once_and_taken_away() {
        let api = FakeApi::start(|_| (200, json!({"metadata": {"name": "group"}, "spec": {}}))).await;
        let directory = SharedDirectory::default();
        directory.lock().gang_mut("g").stale_note = Some("1970-01-01T00:00:01Z".to_owned());
        let metrics = Arc::new(Metrics::new().expect("metrics"));
        let scribe = Scribe::new(api.client.clone(), Fence::open(), metrics, directory);
        let report = |since: Option<i64>| GangReport {
            uid: "g".to_owned(),
            key: ObjectKey::new("ns", "group"),
            owner: String::new(),
            queue: String::new(),
            state: GangState::Partial,
            min_member: 2,
            pods: 2,
            bound: 1,
            quality: None,
            reasons: Vec::new(),
            promised: std::collections::BTreeMap::new(),
            stale: since.map(|since| Stale { since, evicting: false, subgroup: String::new(), has: 1, needs: 2 }),
            preemptible: true,
            allocated: Amounts::new(),
            requested: Amounts::new(),
            warnings: Vec::new(),
        };
        for since in [Some(1_999), Some(61_500), Some(61_500), None, None] {
            assert_eq!(scribe.stale_note(&report(since), "object").await, End::Done);
        }
        let asked = api.asked();
        let notes: Vec<_> = asked.iter().map(|asked| &asked.body["metadata"]["annotations"][keys::STALE_TIMESTAMP]).collect();
        assert_eq!(notes, [&json!("1970-01-01T00:01:01Z"), &Value::Null], "the first one stands there already");
        assert!(asked.iter().all(|asked| asked.path.ends_with("/podgroups/group") && asked.body["metadata"]["uid"] == "object"));
    }
}
