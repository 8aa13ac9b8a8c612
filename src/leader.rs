//! Who may write: a Lease (coordination.k8s.io) in one namespace, and the fence that every write looks at.
//!
//! [`Elector`] is the state machine: the Lease as it was read and the moment go in, what to do comes out; it knows no client
//! and no clock. [`Leadership`] makes the requests. Guarantees: nobody takes a Lease before it stood unchanged for its whole
//! duration by his own clock; a leader stops writing [`RENEW_DEADLINE`] after the *start* of its last successful renewal; and
//! [`RENEW_DEADLINE`] plus the longest Binding ([`crate::bind::REQUEST_TIMEOUT`]) is not longer than the Lease. So when a
//! successor lists, nothing of its predecessor is on its way any more. Clocks of two machines are never compared.
//!
//! A process that does not stand for election marks the same Lease while it runs ([`Leadership::mark`]), so that the next one
//! knows whether it ended in good order.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use tracing::{info, warn};

use crate::access::Access;
use crate::bind::REQUEST_TIMEOUT;

/// How long a Lease stands without a sign of life: what a crash costs. The customary value.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);

/// A leader that could not renew for this long stops writing.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// How often the Lease is renewed, or looked at by those who wait.
const RETRY: Duration = Duration::from_secs(2);

const _: () = assert!(RENEW_DEADLINE.as_secs() + REQUEST_TIMEOUT.as_secs() <= LEASE_DURATION.as_secs());

/// Milliseconds of this process's own clock.
type Millis = i64;

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}

/// Whether this process may write now. Cheap to clone and to ask.
#[derive(Clone, Debug)]
pub struct Fence {
    start: Instant,
    until: Arc<AtomicI64>,
}

impl Fence {
    /// One that always lets pass: somebody else sees to it that one process runs at a time.
    #[must_use]
    pub fn open() -> Self {
        Self { start: Instant::now(), until: Arc::new(AtomicI64::new(Millis::MAX)) }
    }

    /// One that lets nothing pass until leadership is won.
    #[must_use]
    pub fn shut() -> Self {
        Self { start: Instant::now(), until: Arc::new(AtomicI64::new(Millis::MIN)) }
    }

    /// Whether a write may leave now.
    #[must_use]
    pub fn lets_pass(&self) -> bool {
        self.now() < self.until.load(Ordering::Acquire)
    }

    fn now(&self) -> Millis {
        millis(self.start.elapsed())
    }

    fn set(&self, until: Millis) {
        self.until.store(until, Ordering::Release);
    }
}

/// What of a Lease matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Who holds it; empty when it was given back.
    pub holder: String,
    /// The resource version: it changes with every sign of life.
    pub version: String,
    /// For how long it stands without one.
    pub duration: i64,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is none: create it.
    Create,
    /// It is free: write it with our name.
    Take,
    /// It is ours: write it again.
    Renew,
    /// Somebody else holds it.
    Wait,
    /// It was ours and is not any more.
    Lost,
}

/// The state machine of one candidate.
#[derive(Clone, Debug)]
pub struct Elector {
    identity: String,
    /// The Lease of somebody else as last seen, and since when it looks like that.
    seen: Option<(Record, Millis)>,
    /// Start of the last successful write of our name.
    renewed: Option<Millis>,
}

impl Elector {
    /// A candidate that has seen nothing yet.
    #[must_use]
    pub fn new(identity: &str) -> Self {
        Self { identity: identity.to_owned(), seen: None, renewed: None }
    }

    /// What follows from the Lease as it was just read.
    pub fn step(&mut self, found: Option<&Record>, now: Millis) -> Step {
        if self.renewed.is_some() && self.writes_until() <= now {
            return Step::Lost;
        }
        let Some(found) = found else {
            // Deleted while somebody else held it: he may not have noticed yet.
            let waits = self.seen.as_ref().is_some_and(|(record, since)| now - since < record.duration);
            return if waits { Step::Wait } else { Step::Create };
        };
        if found.holder == self.identity {
            return Step::Renew;
        }
        if self.renewed.is_some() {
            return Step::Lost;
        }
        if found.holder.is_empty() {
            return Step::Take;
        }
        match &self.seen {
            Some((record, since)) if record.version == found.version => {
                if now - since >= found.duration.max(millis(LEASE_DURATION)) { Step::Take } else { Step::Wait }
            }
            _ => {
                self.seen = Some((found.clone(), now));
                Step::Wait
            }
        }
    }

    /// Our name was written by a request that left at this moment.
    pub fn written(&mut self, left_at: Millis) {
        self.renewed = Some(left_at);
    }

    /// Until when we may write.
    #[must_use]
    pub fn writes_until(&self) -> Millis {
        self.renewed.map_or(Millis::MIN, |renewed| renewed.saturating_add(millis(RENEW_DEADLINE)))
    }
}

/// Another process keeps the Lease alive.
#[derive(thiserror::Error, Clone, Debug, PartialEq, Eq)]
#[error("{0} runs and leads; stop it first, or stand by with --leader-elect")]
pub struct Alive(String);

/// The Lease in the API, and our part in it.
pub struct Leadership {
    leases: Api<Lease>,
    name: String,
    elector: Elector,
    fence: Fence,
    access: Access,
    /// How the last look failed, so that each failure is told once.
    complaint: String,
}

impl Leadership {
    /// A candidate for the Lease of this name; `fence` opens when it leads.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str, fence: Fence) -> Self {
        let leases = Api::namespaced(client, namespace);
        let access = Access::new(Duration::MAX);
        Self { leases, name: name.to_owned(), elector: Elector::new(identity), fence, access, complaint: String::new() }
    }

    /// Tells `access` when the API server refuses to show the Lease.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Returns when this process leads.
    pub async fn acquire(&mut self) {
        let mut waited = false;
        while self.turn().await != Some(true) {
            if !waited {
                waited = true;
                info!(lease = %self.name, identity = %self.elector.identity, "standing by until the Lease is free");
            }
            tokio::time::sleep(RETRY).await;
        }
        info!(lease = %self.name, identity = %self.elector.identity, "leading");
    }

    /// Renews until leadership is lost; returns then. Stop it by dropping.
    pub async fn keep(&mut self) {
        loop {
            tokio::time::sleep(RETRY).await;
            if self.turn().await == Some(false) {
                self.fence.set(Millis::MIN);
                return;
            }
        }
    }

    /// Marks the Lease with our name without standing for election. Free, it says that whoever ran before ended in good order,
    /// and nothing is waited for; else, or when that can't be known, this waits for `patience`, after which nothing that an
    /// earlier process sent may take effect any more. An error when somebody else keeps the Lease alive meanwhile. The Lease is not renewed.
    pub async fn mark(&mut self, patience: Duration) -> Result<(), Alive> {
        let (before, taken) = self.try_mark(None).await?;
        if taken {
            return Ok(());
        }
        let holder = before.as_ref().map(|record| record.holder.as_str()).unwrap_or_default();
        info!(lease = %self.name, holder, "how an earlier process ended is not known: waiting out what it could have sent");
        tokio::time::sleep(patience).await;
        let (_, taken) = self.try_mark(Some(before)).await?;
        info!(lease = %self.name, marked = taken, "waited");
        Ok(())
    }

    /// One look at the Lease, and our name on it if it is free, or (the second time) did not change since `before`.
    async fn try_mark(&self, before: Option<Option<Record>>) -> Result<(Option<Record>, bool), Alive> {
        let identity = &self.elector.identity;
        let asked = async {
            let found = self.leases.get_opt(&self.name).await?;
            let seen = found.as_ref().map(record);
            let held = seen.as_ref().filter(|record| !record.holder.is_empty());
            match (held, &before) {
                (Some(record), Some(before)) if before.as_ref() != Some(record) => return Ok(Err(Alive(record.holder.clone()))),
                (Some(_), None) => return Ok(Ok((seen, false))),
                _ => {}
            }
            match self.write(found, identity).await {
                Ok(()) => Ok(Ok((seen, true))),
                Err(error) => {
                    warn!(lease = %self.name, %error, "the Lease could not be written");
                    Ok(Ok((seen, false)))
                }
            }
        };
        match tokio::time::timeout(REQUEST_TIMEOUT, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                let error: Error = error;
                warn!(lease = %self.name, %error, "the Lease could not be read");
                Ok((None, false))
            }
            Err(_) => {
                warn!(lease = %self.name, "the Lease could not be read or written in time");
                Ok((None, false))
            }
        }
    }

    /// Gives the Lease back, so that a successor need not wait. Call it when nothing is in flight any more.
    pub async fn release(mut self) {
        self.fence.set(Millis::MIN);
        if let Ok(Ok(Some(lease))) = tokio::time::timeout(REQUEST_TIMEOUT, self.leases.get_opt(&self.name)).await
            && self.elector.step(Some(&record(&lease)), self.fence.now()) == Step::Renew
        {
            let written = self.write(Some(lease), "").await;
            info!(lease = %self.name, given_back = written.is_ok(), "Lease released");
        }
    }

    /// One look and what follows. Whether we lead; `None` when that is not known or somebody else does.
    async fn turn(&mut self) -> Option<bool> {
        let left_at = self.fence.now();
        let result = match tokio::time::timeout(REQUEST_TIMEOUT, self.try_turn(left_at)).await {
            Ok(result) => result.map_err(|error| {
                if let Error::Api(status) = &error {
                    self.access.refused("Lease", status.code, &status.message);
                }
                error.to_string()
            }),
            Err(_) => Err("no answer in time".to_owned()),
        };
        match result {
            Ok(state) => {
                self.access.answered("Lease");
                self.complaint.clear();
                state
            }
            Err(error) => {
                if self.complaint != error {
                    warn!(lease = %self.name, error, "the Lease could not be read or written; trying again");
                    self.complaint = error;
                }
                // Without an answer the deadline decides.
                let leads = self.elector.renewed.is_some();
                (leads && self.elector.writes_until() <= self.fence.now()).then_some(false)
            }
        }
    }

    async fn try_turn(&mut self, left_at: Millis) -> Result<Option<bool>, Error> {
        let found = self.leases.get_opt(&self.name).await?;
        let step = self.elector.step(found.as_ref().map(record).as_ref(), self.fence.now());
        match step {
            Step::Wait => return Ok(None),
            Step::Lost => return Ok(Some(false)),
            Step::Create | Step::Take | Step::Renew => {}
        }
        let identity = self.elector.identity.clone();
        match self.write(found, &identity).await {
            Ok(()) => {
                self.elector.written(left_at);
                self.fence.set(self.elector.writes_until());
                Ok(Some(true))
            }
            // Somebody was faster: the next look says who.
            Err(Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn write(&self, found: Option<Lease>, holder: &str) -> Result<(), Error> {
        let now = MicroTime(Timestamp::now());
        let is_new = found.is_none();
        let mut lease = found.unwrap_or_default();
        lease.metadata.name = Some(self.name.clone());
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(holder) && !holder.is_empty() {
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(i32::from(!is_new)));
        }
        spec.holder_identity = Some(holder.to_owned());
        spec.lease_duration_seconds = i32::try_from(LEASE_DURATION.as_secs()).ok();
        spec.renew_time = Some(now);
        let parameters = PostParams::default();
        if is_new {
            self.leases.create(&parameters, &lease).await?;
        } else {
            // The resource version that was read goes along: of two writers one is refused.
            self.leases.replace(&self.name, &parameters, &lease).await?;
        }
        Ok(())
    }
}

fn record(lease: &Lease) -> Record {
    let spec = lease.spec.as_ref();
    Record {
        holder: spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default(),
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
        duration: i64::from(spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or_default()).saturating_mul(1_000),
    }
}

/// A name for this process that no other has: host, and a number of the moment and the process.
#[must_use]
pub fn identity() -> String {
    let host = std::env::var("HOSTNAME").ok().or_else(|| std::fs::read_to_string("/etc/hostname").ok());
    let host = host.map(|host| host.trim().to_owned()).filter(|host| !host.is_empty()).unwrap_or_else(|| "berth".to_owned());
    format!("{host}_{}_{:x}", std::process::id(), crate::clock::now_millis())
}

/// The Lease of a scheduler name: two Berths with different names do not exclude each other.
#[must_use]
pub fn lease_name(scheduler_name: &str) -> String {
    format!("berth-{scheduler_name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_api::{FakeApi, failure};
    use serde_json::json;

    fn held_by(holder: &str, version: &str) -> Record {
        Record { holder: holder.to_owned(), version: version.to_owned(), duration: 15_000 }
    }

    #[test]
    fn a_free_lease_is_taken_at_once() {
        assert_eq!(Elector::new("me").step(None, 0), Step::Create);
        assert_eq!(Elector::new("me").step(Some(&held_by("", "1")), 0), Step::Take);
    }

    #[test]
    fn a_held_lease_is_taken_when_it_stood_still_for_its_whole_duration() {
        let mut elector = Elector::new("me");
        assert_eq!(elector.step(Some(&held_by("you", "1")), 0), Step::Wait);
        assert_eq!(elector.step(Some(&held_by("you", "1")), 14_999), Step::Wait);
        assert_eq!(elector.step(Some(&held_by("you", "2")), 15_000), Step::Wait, "a sign of life");
        assert_eq!(elector.step(Some(&held_by("you", "2")), 29_999), Step::Wait);
        assert_eq!(elector.step(Some(&held_by("you", "2")), 30_000), Step::Take);
    }

    #[test]
    fn a_deleted_lease_does_not_shorten_the_wait() {
        let mut elector = Elector::new("me");
        elector.step(Some(&held_by("you", "1")), 0);
        assert_eq!([elector.step(None, 14_000), elector.step(None, 15_000)], [Step::Wait, Step::Create]);
    }

    #[test]
    fn a_leader_renews_and_loses_by_another_or_by_time() {
        let mut elector = Elector::new("me");
        assert_eq!(elector.writes_until(), Millis::MIN);
        elector.written(1_000);
        assert_eq!(elector.writes_until(), 11_000);
        assert_eq!(elector.step(Some(&held_by("me", "1")), 10_999), Step::Renew);
        assert_eq!(elector.clone().step(Some(&held_by("me", "1")), 11_000), Step::Lost, "it may be another's by now");
        assert_eq!(elector.step(Some(&held_by("you", "2")), 2_000), Step::Lost);
    }

    #[test]
    fn the_fence_follows() {
        assert!(Fence::open().lets_pass());
        let fence = Fence::shut();
        assert!(!fence.lets_pass());
        fence.set(fence.now() + 60_000);
        assert!(fence.lets_pass());
        fence.set(fence.now());
        assert!(!fence.lets_pass());
    }

    #[tokio::test]
    async fn of_two_that_create_it_one_leads() {
        let api = FakeApi::start(|asked| match asked.method.as_str() {
            "GET" => failure(404, "not found"),
            _ => failure(409, "somebody was faster"),
        })
        .await;
        let fence = Fence::shut();
        let mut loser = Leadership::new(api.client.clone(), "ns", "berth", "me", fence.clone());
        assert_eq!(loser.turn().await, None);
        assert!(!fence.lets_pass());
        let api = FakeApi::start(|asked| match asked.method.as_str() {
            "GET" => failure(404, "not found"),
            _ => (201, json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "berth"}})),
        })
        .await;
        let mut winner = Leadership::new(api.client.clone(), "ns", "berth", "me", fence.clone());
        assert_eq!(winner.turn().await, Some(true));
        assert!(fence.lets_pass());
        assert_eq!(api.asked()[1].body["spec"]["holderIdentity"], "me");
    }

    /// An API with one Lease, held by this name at first; `renewed` changes it at every look.
    async fn with_lease(holder: &'static str, renewed: bool) -> FakeApi {
        let looks = std::sync::atomic::AtomicU64::new(1);
        FakeApi::start(move |asked| {
            let version = if renewed { looks.fetch_add(1, Ordering::Relaxed) } else { 1 };
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": "berth", "resourceVersion": version.to_string()}, "spec": {"holderIdentity": holder},
            });
            match asked.method.as_str() {
                "GET" => (200, lease),
                _ => (200, asked.body.clone()),
            }
        })
        .await
    }

    /// How marking ends, whether time was waited out, and the name that was written.
    async fn marked(api: &FakeApi) -> (Result<(), Alive>, bool, Option<String>) {
        let mut leadership = Leadership::new(api.client.clone(), "ns", "berth", "me", Fence::open());
        let result = leadership.mark(Duration::from_millis(1)).await;
        let looks = api.asked().iter().filter(|asked| asked.method == "GET").count();
        let last = api.asked().into_iter().rfind(|asked| asked.method == "PUT");
        let written = last.and_then(|asked| asked.body["spec"]["holderIdentity"].as_str().map(str::to_owned));
        (result, looks == 2, written)
    }

    #[tokio::test]
    async fn a_lease_given_back_costs_no_wait() {
        assert_eq!(marked(&with_lease("", false).await).await, (Ok(()), false, Some("me".to_owned())));
    }

    #[tokio::test]
    async fn what_a_dead_process_sent_is_waited_out() {
        assert_eq!(marked(&with_lease("you", false).await).await, (Ok(()), true, Some("me".to_owned())));
    }

    #[tokio::test]
    async fn a_process_that_lives_is_not_pushed_aside() {
        assert_eq!(marked(&with_lease("you", true).await).await, (Err(Alive("you".to_owned())), true, None));
    }

    #[tokio::test]
    async fn without_a_readable_lease_the_wait_is_kept() {
        let api = FakeApi::start(|_| failure(403, "forbidden")).await;
        assert_eq!(marked(&api).await, (Ok(()), true, None));
    }
}
