//! Whether the API server lets this process do its work at all. An account that is refused for good decides nothing: such a
//! process ends with a message, so that whoever looks at it sees why, instead of standing there and looking well.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tracing::warn;

/// The kinds without which nothing can be decided.
const NEEDED: [&str; 2] = ["Pod", "Node"];

/// Refusals of what cannot be done without, and since when they last.
#[derive(Clone, Debug)]
pub struct Access {
    limit: Duration,
    since: Arc<Mutex<BTreeMap<String, Instant>>>,
    verdict: watch::Sender<Option<String>>,
}

impl Access {
    /// Refusals may last this long.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { limit, since: Arc::default(), verdict: watch::Sender::new(None) }
    }

    /// An answer about `what` (a kind) was this HTTP status. True when it is a refusal that counts: credentials that are not
    /// accepted, or a right without which nothing works.
    pub fn refused(&self, what: &str, code: u16, message: &str) -> bool {
        self.refused_at(what, code, message, Instant::now())
    }

    fn refused_at(&self, what: &str, code: u16, message: &str, now: Instant) -> bool {
        if code != 401 && (code != 403 || !(NEEDED.contains(&what) || what == "Lease")) {
            return false;
        }
        let mut refusals = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *refusals.entry(what.to_owned()).or_insert(now);
        let lasted = now.duration_since(since);
        if lasted.is_zero() {
            warn!(kind = what, code, limit_seconds = self.limit.as_secs(), "refused by the API server; this process ends if that lasts");
        } else if self.limit <= lasted {
            let help = if code == 401 {
                "its credentials are not accepted: renew the token or the certificate"
            } else {
                "its account lacks the right: apply what `berth generate rbac` prints"
            };
            let text = format!("the API server has refused this process for {} s ({what}: {code} {message}); {help}", lasted.as_secs());
            self.verdict.send_replace(Some(text));
        }
        true
    }

    /// It answered about `what`: what was before does not count.
    pub fn answered(&self, what: &str) {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).remove(what);
    }

    /// Waits until refusals have lasted too long; the sentence to end with.
    pub async fn given_up(&self) -> String {
        let mut verdict = self.verdict.subscribe();
        loop {
            if let Some(text) = verdict.borrow_and_update().clone() {
                return text;
            }
            if verdict.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn refusals_count_while_they_last() {
        let access = Access::new(Duration::from_secs(60));
        let start = Instant::now();
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        assert!(!access.refused_at("Job", 403, "no", start) && !access.refused_at("Pod", 500, "broken", start));
        assert!(access.refused_at("Pod", 403, "no", start) && access.refused_at("Pod", 403, "no", after(59)));
        access.answered("Pod");
        assert!(access.refused_at("Pod", 403, "no", after(60)) && access.verdict.borrow().is_none(), "what is over does not count");
        assert!(access.refused_at("Job", 401, "who are you", after(60)) && access.refused_at("Job", 401, "who are you", after(120)));
        let text = access.given_up().await;
        assert!(text.contains("for 60 s (Job: 401 who are you); its credentials"), "{text}");
    }
}
