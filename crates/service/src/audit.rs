//! The person or script that acts. The layer that authenticates a request names it once, around the
//! request ([`acting`]).
//!
//! Each row that they change has a line in the log with the target `audit`. An action that changes
//! no row is a [`note`].

pub use store::rows::audit::Actor;
use store::rows::audit::Entry;

tokio::task_local! {
    static ACTOR: Actor;
}

/// Carries out `work` in the name of `actor`. Tasks that `work` spawns have no actor.
pub async fn acting<F: Future>(actor: Actor, work: F) -> F::Output {
    ACTOR.scope(actor, work).await
}

pub(super) fn actor() -> Option<Actor> {
    ACTOR.try_with(Clone::clone).ok()
}

/// Logs an action of a person that changes no row.
pub fn note(action: &'static str, what: &'static str, id: &str) {
    if let Some(actor) = actor() {
        Entry::bare(action, what, id.to_owned()).write(&actor);
    }
}
