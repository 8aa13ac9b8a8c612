//! What the running scheduler lends to whoever asks: a copy of its model at one moment.
//!
//! The engine thread stays the only owner of the model. A copy is made only when somebody asks and the last one is old, and
//! never so often that more than a fiftieth of the engine's time goes into it; between two of them every question is
//! answered from the same copy without waking the engine. What is computed from a copy is computed elsewhere.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use berth_engine::facts::Millis;
use berth_engine::outcome::{Decision, Eviction};
use berth_engine::policy::Policy;
use berth_engine::world::World;
use tokio::sync::{mpsc, oneshot};

use crate::moment::{Gone, Moment, Placed};

/// Questions that wait for the engine at the most; each is answered by the same copy.
const MAX_ASKS: usize = 64;

/// A copy is lent for so long: a person does not see the difference.
const LIFE_MILLIS: Millis = 2_000;

/// After a copy that took some time, so many times that time belongs to the engine alone.
const REST: Millis = 50;

/// A copy that nobody asked for so long after its end is given up: it is as large as the model.
const KEPT_MILLIS: Millis = 10_000;

/// Decisions and evictions that are remembered.
const MAX_PLACED: usize = 200;

/// The model at one moment.
#[derive(Debug)]
pub struct Sight {
    /// Running number.
    pub number: u64,
    /// When it was taken.
    pub taken: Millis,
    world: World,
    policy: Policy,
    placed: Vec<Arc<Placed>>,
    gone: Vec<Arc<Gone>>,
    until: Millis,
}

impl Sight {
    /// What answers are made from.
    #[must_use]
    pub fn moment(&self) -> Moment<'_> {
        Moment { world: &self.world, policy: self.policy.clone(), now: self.taken, placed: self.placed.clone(), gone: self.gone.clone() }
    }
}

/// Nobody can be shown anything now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// Too many ask.
    Busy,
    /// There is no engine, or not yet.
    NoEngine,
}

type Latest = Arc<Mutex<Option<Arc<Sight>>>>;

/// Asks the engine; may be cloned.
#[derive(Clone, Debug)]
pub struct Asker {
    asks: mpsc::Sender<Ask>,
    latest: Latest,
}

/// A question on its way.
#[derive(Debug)]
pub struct Ask(oneshot::Sender<Arc<Sight>>);

/// The engine's side.
#[derive(Debug)]
pub struct Window {
    asks: mpsc::Receiver<Ask>,
    latest: Latest,
    placed: VecDeque<Arc<Placed>>,
    gone: VecDeque<Arc<Gone>>,
    number: u64,
}

/// Both sides.
#[must_use]
pub fn window() -> (Asker, Window) {
    let (sender, asks) = mpsc::channel(MAX_ASKS);
    let latest = Latest::default();
    let asker = Asker { asks: sender, latest: Arc::clone(&latest) };
    (asker, Window { asks, latest, placed: VecDeque::new(), gone: VecDeque::new(), number: 0 })
}

fn current(latest: &Latest, now: Millis) -> Option<Arc<Sight>> {
    let sight = latest.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // A clock that was set back must not lend an old copy for ever.
    sight.filter(|sight| (sight.taken..=sight.until).contains(&now))
}

impl Asker {
    /// The model as it was a moment ago.
    ///
    /// # Errors
    ///
    /// Too many wait for it, or there is no engine.
    pub async fn sight(&self, now: Millis) -> Result<Arc<Sight>, Unseen> {
        if let Some(sight) = current(&self.latest, now) {
            return Ok(sight);
        }
        let (sender, answer) = oneshot::channel();
        self.asks.try_send(Ask(sender)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Unseen::Busy,
            mpsc::error::TrySendError::Closed(_) => Unseen::NoEngine,
        })?;
        answer.await.map_err(|_| Unseen::NoEngine)
    }
}

impl Window {
    /// Waits for a question; for ever when nobody can ask.
    pub(crate) async fn asked(&mut self) -> Ask {
        match self.asks.recv().await {
            Some(ask) => ask,
            None => std::future::pending().await,
        }
    }

    /// A question that has come.
    pub(super) fn next(&mut self) -> Option<Ask> {
        self.asks.try_recv().ok()
    }

    /// Answers with the current copy, or with a new one. Gives the milliseconds that a new one took.
    pub(crate) fn answer(&mut self, Ask(answer): Ask, world: &World, policy: &Policy, now: Millis) -> Option<f64> {
        let (sight, took) = match current(&self.latest, now) {
            Some(sight) => (sight, None),
            // Who asked has gone meanwhile: nothing is copied for nobody.
            None if answer.is_closed() => return None,
            None => {
                let started = Instant::now();
                let sight = self.take(world, policy, now, started);
                (sight, Some(started.elapsed().as_secs_f64() * 1000.0))
            }
        };
        // Who does not wait any more misses nothing.
        let _gone = answer.send(sight).is_err();
        took
    }

    fn take(&mut self, world: &World, policy: &Policy, now: Millis, started: Instant) -> Arc<Sight> {
        // The old one first: never two of them because of us.
        self.put(None);
        self.number += 1;
        let world = world.fork();
        let rest = Millis::try_from(started.elapsed().as_millis()).unwrap_or(Millis::MAX).saturating_mul(REST);
        let sight = Arc::new(Sight {
            number: self.number,
            taken: now,
            world,
            policy: policy.clone(),
            placed: self.placed.iter().cloned().collect(),
            gone: self.gone.iter().cloned().collect(),
            until: now.saturating_add(rest.max(LIFE_MILLIS)),
        });
        self.put(Some(Arc::clone(&sight)));
        sight
    }

    fn put(&self, sight: Option<Arc<Sight>>) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = sight;
    }

    /// Gives up a copy that nobody asks for any more.
    pub(super) fn tidy(&self, now: Millis) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.as_ref().is_some_and(|sight| sight.until.saturating_add(KEPT_MILLIS) < now) {
            *latest = None;
        }
    }

    /// Remembers a decision.
    pub(super) fn placed(&mut self, decision: &Decision, now: Millis) {
        if self.placed.len() >= MAX_PLACED {
            self.placed.pop_front();
        }
        self.placed.push_back(Arc::new(Placed::of(decision, now)));
    }

    /// Remembers an eviction.
    pub(super) fn evicted(&mut self, eviction: &Eviction) {
        if self.gone.len() >= MAX_PLACED {
            self.gone.pop_front();
        }
        self.gone.push_back(Arc::new(Gone::of(eviction)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(window: &mut Window, now: Millis) -> Option<f64> {
        let ask = window.next().expect("a question waits");
        window.answer(ask, &World::new(), &Policy::standard(), now)
    }

    #[tokio::test]
    async fn one_copy_serves_all_who_ask_within_its_life() {
        let (asker, mut window) = window();
        let (first, second) = (asker.sight(100), asker.sight(100));
        let engine = async {
            assert!(answered(&mut window, 100).is_some(), "the first question costs a copy");
            assert!(answered(&mut window, 150).is_none(), "the second does not");
            window
        };
        let (first, second, mut window) = tokio::join!(first, second, engine);
        let number = |sight: Result<Arc<Sight>, Unseen>| sight.map(|sight| sight.number);
        assert_eq!((number(first), number(second)), (Ok(1), Ok(1)));
        // Without the engine.
        assert_eq!(number(asker.sight(100 + LIFE_MILLIS).await), Ok(1));
        assert!(window.next().is_none(), "the engine was not asked");
        // Later, or before, it is.
        for now in [101 + LIFE_MILLIS, 99] {
            let (sight, took) = tokio::join!(asker.sight(now), async { answered(&mut window, now) });
            assert!(sight.is_ok() && took.is_some());
        }
        window.tidy(99 + LIFE_MILLIS + KEPT_MILLIS);
        assert!(current(&window.latest, 99).is_some());
        window.tidy(100 + LIFE_MILLIS + KEPT_MILLIS);
        assert!(current(&window.latest, 99).is_none(), "nobody asks for it any more");
    }

    #[tokio::test]
    async fn questions_are_bounded_and_nothing_is_copied_for_who_left() {
        let (asker, mut window) = window();
        let asks: Vec<_> = (0..MAX_ASKS).map(|_| Box::pin(asker.sight(0))).collect();
        let mut asks = futures::future::join_all(asks);
        assert!(futures::poll!(&mut asks).is_pending());
        assert_eq!(asker.sight(0).await.map(|sight| sight.number), Err(Unseen::Busy));
        drop(asks);
        assert_eq!(answered(&mut window, 0), None);
        assert!(current(&window.latest, 0).is_none());
        drop(window);
        assert_eq!(asker.sight(0).await.map(|sight| sight.number), Err(Unseen::NoEngine));
    }

    #[test]
    fn a_copy_that_took_long_is_lent_for_longer() {
        let (_asker, mut window) = window();
        let started = Instant::now().checked_sub(std::time::Duration::from_millis(100)).expect("the machine runs longer");
        let sight = window.take(&World::new(), &Policy::standard(), 0, started);
        assert!(sight.until >= 100 * REST, "{}", sight.until);
    }
}
