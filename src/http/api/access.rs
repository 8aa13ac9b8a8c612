//! Who asks, and what they may see: the API server is asked for both (TokenReview, SubjectAccessReview), so the rules are
//! those of the cluster. Answers are kept for seconds, by the hash of the token; a token itself is neither kept nor logged.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use berth_engine::facts::Millis;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use ring::digest;
use tokio::sync::Semaphore;
use tracing::warn;

use super::refusal::Refusal;
use crate::telemetry::Complaint;

/// What a review said is believed for so long: a right that is taken away ends within this.
const BELIEVED_MILLIS: Millis = 10_000;

/// A token that is no good is not reviewed again for so long.
const REFUSED_MILLIS: Millis = 5_000;

/// Reviews that are remembered, of each kind.
const MAX_REMEMBERED: usize = 4_096;

/// Reviews under way at a time: requests of a scheduler, and its Bindings share its allowance with them.
const MAX_REVIEWS: usize = 4;

/// Requests of one user at a time, with whatever tokens: answers are made one by one, and others ask too.
const MAX_OF_ONE: usize = 4;

/// How long one review may take.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// A token longer than this is none.
const MAX_TOKEN: usize = 16 * 1024;

/// SHA-256 of a token.
type Hash = [u8; 32];

/// Somebody whose token the API server knows, while they are served.
#[derive(Debug)]
pub(super) struct Caller {
    hash: Hash,
    user: UserInfo,
    served: Arc<Served>,
}

/// Requests under way by user.
#[derive(Debug, Default)]
struct Served(Mutex<BTreeMap<String, usize>>);

impl Served {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Caller {
    /// The caller, if not too many of their requests are under way.
    fn new(hash: Hash, user: UserInfo, served: &Arc<Served>) -> Result<Self, Refusal> {
        let mut counts = served.lock();
        let count = counts.entry(user.username.clone().unwrap_or_default()).or_default();
        if *count >= MAX_OF_ONE {
            return Err(Refusal::too_many(MAX_OF_ONE));
        }
        *count += 1;
        drop(counts);
        Ok(Self { hash, user, served: Arc::clone(served) })
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let name = self.user.username.as_deref().unwrap_or_default();
        let mut counts = self.served.lock();
        let left = counts.get(name).copied().unwrap_or_default().saturating_sub(1);
        if left == 0 {
            counts.remove(name);
        } else if let Some(count) = counts.get_mut(name) {
            *count = left;
        }
    }
}

/// Something that somebody may do or not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Right {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    /// Empty is all of them.
    namespace: String,
    /// Empty is all of them.
    name: String,
}

impl Right {
    /// To list a kind in all namespaces.
    pub(super) fn list(group: &'static str, resource: &'static str) -> Self {
        Self { verb: "list", group, resource, namespace: String::new(), name: String::new() }
    }

    /// To list the pods of a namespace.
    pub(super) fn list_pods(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..Self::list("", "pods") }
    }

    /// To read one object, or every one of its kind in the namespace where the name is empty.
    pub(super) fn get(group: &'static str, resource: &'static str, namespace: &str, name: &str) -> Self {
        Self { verb: "get", group, resource, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// As `kubectl auth can-i` would say it.
    pub(super) fn told(&self) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let name = if self.name.is_empty() { String::new() } else { format!("/{}", self.name) };
        let namespace = if self.namespace.is_empty() { "all namespaces".to_owned() } else { format!("namespace {}", self.namespace) };
        format!("{} {}{group}{name} in {namespace}", self.verb, self.resource)
    }
}

/// Answers by question, each until a moment.
#[derive(Debug)]
struct Remembered<K, V>(Mutex<BTreeMap<K, (Millis, V)>>);

impl<K: Ord + Clone, V: Clone> Remembered<K, V> {
    fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, (Millis, V)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, key: &K, now: Millis) -> Option<V> {
        // A clock that was set back must not prolong anything.
        self.lock().get(key).filter(|(until, _)| (now..=now.saturating_add(BELIEVED_MILLIS)).contains(until)).map(|(_, value)| value.clone())
    }

    fn put(&self, key: K, value: V, until: Millis, now: Millis) {
        let mut map = self.lock();
        if map.len() >= MAX_REMEMBERED {
            map.retain(|_, (until, _)| *until >= now);
        }
        if map.len() >= MAX_REMEMBERED {
            map.clear();
        }
        map.insert(key, (until, value));
    }
}

/// Asks the API server, and remembers for a while.
#[derive(Debug)]
pub(super) struct Access {
    tokens: Api<TokenReview>,
    rights: Api<SubjectAccessReview>,
    known: Remembered<Hash, Option<UserInfo>>,
    allowed: Remembered<(Hash, Right), bool>,
    slots: Semaphore,
    served: Arc<Served>,
    trouble: Mutex<Complaint>,
}

impl Access {
    pub(super) fn new(client: Client) -> Self {
        Self {
            tokens: Api::all(client.clone()),
            rights: Api::all(client),
            known: Remembered::new(),
            allowed: Remembered::new(),
            slots: Semaphore::new(MAX_REVIEWS),
            served: Arc::default(),
            trouble: Mutex::default(),
        }
    }

    /// Whose token this is.
    pub(super) async fn caller(&self, token: &str, now: Millis) -> Result<Caller, Refusal> {
        if token.is_empty() || token.len() > MAX_TOKEN {
            return Err(Refusal::unknown());
        }
        let mut hash = Hash::default();
        hash.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
        let user = match self.known.get(&hash, now) {
            Some(user) => user,
            None => {
                let user = self.review(token).await?;
                let until = now.saturating_add(if user.is_some() { BELIEVED_MILLIS } else { REFUSED_MILLIS });
                self.known.put(hash, user.clone(), until, now);
                user
            }
        };
        Caller::new(hash, user.ok_or_else(Refusal::unknown)?, &self.served)
    }

    async fn review(&self, token: &str) -> Result<Option<UserInfo>, Refusal> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let status = self.ask(&self.tokens, &review, "create tokenreviews.authentication.k8s.io").await?.status.unwrap_or_default();
        let is_known = status.authenticated == Some(true);
        // Without a name there is nobody whose rights could be asked for.
        Ok(status.user.filter(|user| is_known && user.username.as_ref().is_some_and(|name| !name.is_empty())))
    }

    /// Whether they may.
    pub(super) async fn may(&self, caller: &Caller, right: &Right, now: Millis) -> Result<bool, Refusal> {
        let key = (caller.hash, right.clone());
        if let Some(allowed) = self.allowed.get(&key, now) {
            return Ok(allowed);
        }
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let user = caller.user.clone();
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            resource_attributes: Some(ResourceAttributes {
                verb: some(right.verb),
                group: some(right.group),
                resource: some(right.resource),
                namespace: some(&right.namespace),
                name: some(&right.name),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let status = self.ask(&self.rights, &review, "create subjectaccessreviews.authorization.k8s.io").await?.status;
        // What denies wins, should both be said.
        let allowed = status.is_some_and(|status| status.allowed && status.denied != Some(true));
        self.allowed.put(key, allowed, now.saturating_add(BELIEVED_MILLIS), now);
        Ok(allowed)
    }

    async fn ask<K>(&self, api: &Api<K>, review: &K, right: &str) -> Result<K, Refusal>
    where
        K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        let Ok(_slot) = self.slots.acquire().await else { return Err(Refusal::failed()) };
        let answer = tokio::time::timeout(REVIEW_TIMEOUT, api.create(&PostParams::default(), review)).await;
        let why = match answer {
            Ok(Ok(answer)) => {
                self.trouble.lock().unwrap_or_else(PoisonError::into_inner).over();
                return Ok(answer);
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => format!("the scheduler lacks a right: {right} (`berth generate rbac --api` grants it)"),
            // The words of the server are not repeated: they could quote what was sent.
            Ok(Err(kube::Error::Api(status))) => format!("the API server answered {}", status.code),
            Ok(Err(_)) => "the API server can't be reached".to_owned(),
            Err(_) => "the API server did not answer in time".to_owned(),
        };
        if let Some(errors) = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).error(Instant::now()) {
            warn!(%why, errors, "who asks can't be reviewed");
        }
        Err(Refusal::unavailable(&format!("who asks can't be reviewed: {why}")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fake_api::{Asked, FakeApi, failure};

    /// Knows the token `good` of ada, who may list nodes and nothing else.
    fn server(asked: &Asked) -> (u16, Value) {
        match asked.path.as_str() {
            "/apis/authentication.k8s.io/v1/tokenreviews" if asked.body["spec"]["token"] == "good" => {
                let user = json!({"username": "ada", "uid": "1", "groups": ["dev"], "extra": {"scopes": ["x"]}});
                (201, json!({"spec": {}, "status": {"authenticated": true, "user": user}}))
            }
            "/apis/authentication.k8s.io/v1/tokenreviews" => (201, json!({"spec": {}, "status": {"error": "no"}})),
            "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
                let allowed = asked.body["spec"]["resourceAttributes"]["resource"] == "nodes";
                (201, json!({"spec": {}, "status": {"allowed": allowed}}))
            }
            _ => failure(404, "not found"),
        }
    }

    #[tokio::test]
    async fn rights_are_those_of_the_tokens_owner_and_remembered_for_a_while() {
        let api = FakeApi::start(server).await;
        let access = Access::new(api.client.clone());
        let ada = access.caller("good", 0).await.expect("known");
        let (nodes, pods) = (Right::list("", "nodes"), Right::get("", "pods", "ns", "p"));
        for now in [0, BELIEVED_MILLIS] {
            assert!(access.caller("good", now).await.is_ok());
            assert!(access.may(&ada, &nodes, now).await.expect("an answer"));
            assert!(!access.may(&ada, &pods, now).await.expect("an answer"));
        }
        let asked = api.asked();
        assert_eq!(asked.len(), 3, "each question once: {asked:?}");
        let spec = &asked[2].body["spec"];
        assert_eq!((&spec["user"], &spec["groups"], &spec["uid"], &spec["extra"]), (&json!("ada"), &json!(["dev"]), &json!("1"), &json!({"scopes": ["x"]})));
        assert_eq!(spec["resourceAttributes"], json!({"verb": "get", "resource": "pods", "namespace": "ns", "name": "p"}));
        // Afterwards everything is asked anew, and so it is when the clock was set back.
        assert!(access.caller("good", BELIEVED_MILLIS + 1).await.is_ok());
        assert!(access.may(&ada, &nodes, BELIEVED_MILLIS + 1).await.expect("an answer"));
        assert!(access.may(&ada, &nodes, -1).await.expect("an answer"));
        assert_eq!(api.asked().len(), 6);
    }

    #[tokio::test]
    async fn a_bad_token_is_refused_and_reviewed_once_in_a_while() {
        let api = FakeApi::start(server).await;
        let access = Access::new(api.client.clone());
        for token in ["bad", "bad", "", &"x".repeat(MAX_TOKEN + 1)] {
            assert_eq!(access.caller(token, 0).await.expect_err("unknown").code(), 401);
        }
        assert_eq!(api.asked().len(), 1);
        assert_eq!(access.caller("bad", REFUSED_MILLIS + 1).await.expect_err("unknown").code(), 401);
        assert_eq!(api.asked().len(), 2);
    }

    #[tokio::test]
    async fn a_review_that_fails_lets_nobody_in_and_is_asked_again() {
        let api = FakeApi::start(|_| failure(403, "secret words")).await;
        let access = Access::new(api.client.clone());
        for _ in 0..2 {
            let refusal = access.caller("good", 0).await.expect_err("nobody knows");
            assert_eq!(refusal.code(), 503);
            let text = refusal.message();
            assert!(text.contains("create tokenreviews.authentication.k8s.io") && !text.contains("secret words"), "{text}");
        }
        assert_eq!(api.asked().len(), 2, "what is not known is not remembered");
    }

    #[tokio::test]
    async fn one_user_has_so_many_requests_at_a_time() {
        let api = FakeApi::start(server).await;
        let access = Access::new(api.client.clone());
        let mut served = Vec::new();
        for _ in 0..MAX_OF_ONE {
            served.push(access.caller("good", 0).await.expect("known"));
        }
        assert_eq!(access.caller("good", 0).await.expect_err("too many").code(), 429);
        served.pop();
        served.push(access.caller("good", 0).await.expect("there is room again"));
        served.clear();
        assert!(access.served.lock().is_empty(), "who is not served leaves nothing behind");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let remembered = Remembered::new();
        for key in 0..3 * MAX_REMEMBERED {
            remembered.put(key, (), 10, 0);
            assert!(remembered.lock().len() <= MAX_REMEMBERED);
            assert!(remembered.get(&key, 0).is_some());
        }
    }
}
