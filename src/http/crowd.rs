//! The connections of one listener, and the choice of the connection that closes when there is no
//! place for another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::locks::lock;

/// The pause between two checks while all connections are busy. One of them may begin to wait, and
/// give way.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A limited number of places.
#[derive(Debug, Clone)]
pub struct Crowd(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    places: Arc<Semaphore>,
    members: Mutex<Members>,
}

#[derive(Debug, Default)]
struct Members {
    n_entered: u64,
    present: BTreeMap<u64, Arc<Standing>>,
}

/// A taken place. Dropping it frees the place.
#[derive(Debug)]
pub struct Place {
    shared: Arc<Shared>,
    number: u64,
    standing: Arc<Standing>,
    _permit: OwnedSemaphorePermit,
}

/// The state of a connection: it waits for its client, or works for it.
#[derive(Debug, Default)]
pub struct Standing {
    wait: Mutex<Option<Wait>>,
    gives_way: CancellationToken,
}

#[derive(Debug, Clone, Copy)]
struct Wait {
    since: Instant,
    until: Instant,
}

impl Crowd {
    /// Creates a crowd with `n_places` places.
    pub fn new(n_places: usize) -> Self {
        Self(Arc::new(Shared {
            places: Arc::new(Semaphore::new(n_places)),
            members: Mutex::default(),
        }))
    }

    /// Takes a place. If there is none, the connection that has waited longest for its client gives
    /// way. Cancel-safe.
    pub async fn enter(&self) -> Place {
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.0.places).try_acquire_owned() {
                break permit;
            }
            self.make_room();
            if let Ok(permit) =
                tokio::time::timeout(LOOK_AGAIN, Arc::clone(&self.0.places).acquire_owned()).await
            {
                break permit.expect("the semaphore is never closed");
            }
        };
        let standing = Arc::new(Standing::default());
        let mut members = lock(&self.0.members);
        members.n_entered += 1;
        let number = members.n_entered;
        members.present.insert(number, Arc::clone(&standing));
        drop(members);
        Place { shared: Arc::clone(&self.0), number, standing, _permit: permit }
    }

    /// Asks the connection that has waited longest to close, if any waits.
    pub fn make_room(&self) {
        let members = lock(&self.0.members);
        let waiting =
            members.present.values().filter(|standing| !standing.gives_way.is_cancelled());
        let longest =
            waiting.filter_map(|standing| Some((standing.lock().as_ref()?.since, standing)));
        if let Some((_, standing)) = longest.min_by_key(|(since, _)| *since) {
            standing.gives_way.cancel();
        }
    }
}

impl Place {
    pub fn standing(&self) -> &Arc<Standing> {
        &self.standing
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut members = lock(&self.shared.members);
        members.present.remove(&self.number);
    }
}

impl Standing {
    /// Notes that the connection waits for its client, at most for `limit`.
    pub fn waits(&self, limit: Duration) {
        let since = clock::now();
        *self.lock() = Some(Wait { since, until: since + limit });
    }

    /// Notes that the server works for the client. There is no time limit, and the connection does
    /// not give way.
    pub fn works(&self) {
        *self.lock() = None;
    }

    /// Returns the time since which the connection waits for its client, if it does.
    pub fn waits_since(&self) -> Option<Instant> {
        Some(self.lock().as_ref()?.since)
    }

    /// Returns the time until which the client must act.
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.lock().as_ref()?.until)
    }

    /// Cancelled when another needs the place.
    pub fn gives_way(&self) -> &CancellationToken {
        &self.gives_way
    }

    /// Returns when another connection needs the place, or when the client's time is up. It never
    /// returns once the connection has begun to work. Cancel-safe.
    pub async fn overstays(&self) {
        let is_late = async {
            while let Some(deadline) = self.deadline() {
                if deadline <= clock::now() {
                    return;
                }
                tokio::time::sleep_until(deadline).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = is_late => {}
            () = self.gives_way.cancelled() => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Wait>> {
        lock(&self.wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_hours(1);

    fn enter(crowd: &Crowd) -> tokio::task::JoinHandle<Place> {
        let crowd = crowd.clone();
        tokio::spawn(async move { crowd.enter().await })
    }

    #[tokio::test(start_paused = true)]
    async fn who_waited_longest_gives_way() {
        let crowd = Crowd::new(3);
        let busy = crowd.enter().await;
        let first = crowd.enter().await;
        let second = crowd.enter().await;
        busy.standing().works();
        for place in [&first, &second] {
            tokio::time::advance(Duration::from_millis(1)).await;
            place.standing().waits(LONG);
        }
        let entering = enter(&crowd);
        first.standing().gives_way().cancelled().await;
        assert!(
            !second.standing().gives_way().is_cancelled()
                && !busy.standing().gives_way().is_cancelled()
        );
        drop(first);
        entering.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_begins_to_wait_while_others_queue_gives_way_soon() {
        let crowd = Crowd::new(1);
        let busy = crowd.enter().await;
        busy.standing().works();
        let entering = enter(&crowd);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!busy.standing().gives_way().is_cancelled());
        busy.standing().waits(LONG);
        busy.standing().gives_way().cancelled().await;
        drop(busy);
        entering.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_works_may_take_its_time() {
        let crowd = Crowd::new(2);
        let waits = crowd.enter().await;
        let works = crowd.enter().await;
        waits.standing().waits(LONG);
        works.standing().waits(LONG);
        works.standing().works();
        waits.standing().overstays().await;
        assert!(tokio::time::timeout(LONG * 9, works.standing().overstays()).await.is_err());
    }
}
