//! Agents in chats. They ask for messages and wait for them. They read, answer late, twice or
//! never, and end when they are told to.

use std::sync::Arc;
use std::time::Duration;

use domain::session::Presenter;
use domain::{LaunchId, Message, Secret};
use service::{NextAction, Pending, Service, ServiceError};
use tokio::time::Instant;

use super::{Character, Ending, Life, Over};
use crate::sim::Sim;
use crate::sim::world::{Dice, pass};

/// The behaviour of an agent in a chat.
#[derive(Debug, Clone)]
pub struct Manner {
    answers: usize,
    thinks_for: Duration,
    /// True if it asks once more for messages that it was given.
    fetches: bool,
    /// The time after which it gives a question up and asks again, unknown to its server. With
    /// `None` it waits.
    gives_up_after: Option<Duration>,
}

impl Manner {
    pub fn of(dice: &mut Dice) -> Self {
        Self {
            answers: dice.pick(&[0, 1, 1, 1, 1, 2]),
            thinks_for: if dice.percent(20) {
                dice.millis(3_000, 50_000)
            } else {
                dice.millis(0, 3_000)
            },
            fetches: dice.percent(30),
            gives_up_after: dice.percent(20).then(|| dice.millis(1_000, 15_000)),
        }
    }
}

impl Life<'_> {
    /// Talks, and returns the way in which it wants to end.
    pub(super) async fn chat(
        &mut self,
        character: &Character,
        token: &Secret,
    ) -> Result<Ending, Over> {
        let manner = &character.in_chats;
        let goes_at = match character.ending {
            Ending::LogsOut | Ending::Exits => Some(Instant::now() + character.works_for),
            Ending::Reports(_) | Ending::Never => None,
        };
        loop {
            let next = self.ask(manner, token).await?;
            match next.action {
                "get_pending_messages" => self.answer(manner, token, &next.messages).await?,
                "logout" if character.is_obedient => return Ok(Ending::LogsOut),
                "exit" if character.is_obedient => return Ok(Ending::Exits),
                "logout" | "exit" => pass(self.dice.millis(500, 4000)).await,
                _ => {}
            }
            if goes_at.is_some_and(|at| Instant::now() >= at) {
                // An agent that is told to log out reads nothing by that.
                if character.ending == Ending::LogsOut {
                    self.sim.talk.settle(self.key, self.launch);
                }
                return Ok(character.ending);
            }
        }
    }

    async fn ask(&mut self, manner: &Manner, token: &Secret) -> Result<NextAction, Over> {
        let (sim, launch, exit_grace) =
            (self.sim, self.launch, manner.gives_up_after.unwrap_or(Duration::MAX));
        loop {
            let next = self
                .say(|service| {
                    let asked =
                        sim.spawn_for(next_of(sim.clone(), service, token.clone(), launch.clone()));
                    async move {
                        match tokio::time::timeout(exit_grace, asked).await {
                            Ok(Some(answer)) => answer.map(Some),
                            Ok(None) | Err(_) => Ok(None),
                        }
                    }
                })
                .await?;
            if let Some(next) = next {
                return Ok(next);
            }
            sim.chronicle.note(|| format!("{launch}  gives its question up"));
        }
    }

    async fn answer(
        &mut self,
        manner: &Manner,
        token: &Secret,
        messages: &[Message],
    ) -> Result<(), Over> {
        let (sim, key, launch) = (self.sim, self.key, self.launch);
        sim.talk.note_seen(key, launch, messages);
        if manner.fetches {
            let Pending { pending, .. } = self
                .say(|service| async move {
                    let caller = service
                        .sessions
                        .identify(token, Presenter::on_socket(Some(launch)))
                        .await?;
                    let pending = service.chats.hand_out(&caller).await?;
                    sim.talk.note_handed_out(&caller.session.id, &pending.pending);
                    Ok(pending)
                })
                .await?;
            sim.talk.note_seen(key, launch, &pending);
        }
        pass(manner.thinks_for).await;
        let content = sim.talk.next_answer(launch);
        for _ in 0..manner.answers {
            let (content, seen) = (&content, sim.talk.settle(key, launch));
            self.say(|service| async move {
                let caller =
                    service.sessions.identify(token, Presenter::on_socket(Some(launch))).await?;
                service.chats.respond(&caller, content).await
            })
            .await?;
            sim.chronicle.note(|| format!("{launch}  has answered up to {seen}"));
            sim.talk.note_acknowledged(key, seen);
        }
        Ok(())
    }
}

/// Returns the server's answer, and notes its meaning for the session: messages that an agent was
/// given once are not given again at once.
async fn next_of(
    sim: Arc<Sim>,
    service: Arc<Service>,
    token: Secret,
    launch: LaunchId,
) -> Result<NextAction, ServiceError> {
    let mut run = sim.run.subscribe();
    let answer = async {
        let caller = service.sessions.identify(&token, Presenter::on_socket(Some(&launch))).await?;
        let (asked_at, before) = (Instant::now(), sim.talk.handed_out(&caller.session.id));
        let next = service.sessions.next_action(&caller, None).await?;
        if next.action == "get_pending_messages" {
            let newest = sim.talk.note_handed_out(&caller.session.id, &next.messages);
            sim.chronicle.note(|| format!("{launch}  is given up to {newest}"));
            if newest <= before && asked_at.elapsed() < ANSWER_TIMEOUT {
                sim.chronicle.violation(format!("{launch} is given message {newest} as new again"));
            }
            sim.read_when_handed_out(&caller.session.key, newest).await;
        }
        Ok(next)
    };
    tokio::select! {
        biased;
        answer = answer => answer,
        // A server that has ended answers no request.
        _ = run.changed() => std::future::pending().await,
    }
}

/// The value of the service.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
