use futures::FutureExt as _;

use super::*;
use crate::peer::{Lineage, LocalPeer};
use domain::Secret;

const ANN: Guesser = Guesser::User(1);
const BOB: Guesser = Guesser::User(2);

fn host(ip: &str) -> Guesser {
    Guesser::of(&Peer::Network(format!("{ip}:1").parse().unwrap()))
}

fn hash(token: &str) -> TokenHash {
    Secret::new(token).token_hash()
}

fn try_passkey(throttle: &Arc<Throttle>, guesser: &Guesser, now: Instant) -> Option<Attempt> {
    throttle
        .try_passkey(guesser.clone(), SlotRule::Needed, now)
        .now_or_never()
        .expect("no check goes on")
}

fn try_token(
    throttle: &Arc<Throttle>,
    guesser: &Guesser,
    token: &str,
    now: Instant,
) -> Option<Attempt> {
    let admitted = throttle.try_token(guesser.clone(), hash(token), SlotRule::Needed, now);
    admitted.now_or_never().expect("no check goes on")
}

/// Wrong passkeys for `agent` until no slot is free; how many were checked.
fn exhaust(throttle: &Arc<Throttle>, guesser: &Guesser, agent: &str, now: Instant) -> usize {
    let attempts = std::iter::from_fn(|| try_passkey(throttle, guesser, now)).take(1_000);
    attempts.filter_map(|attempt| attempt.failed(Some(agent), now)).count()
}

#[track_caller]
fn check_delays(expected: &[u128], fail: impl FnMut() -> Option<Duration>) {
    let delays: Vec<u128> = std::iter::repeat_with(fail)
        .take(expected.len())
        .map(|delay| delay.unwrap().as_millis())
        .collect();
    assert_eq!(delays, expected);
}

/// A clock, and failures that wait for their answer.
struct Patient {
    throttle: Arc<Throttle>,
    now: Instant,
}

impl Patient {
    fn new() -> Self {
        Self { throttle: Arc::default(), now: Instant::now() }
    }

    fn fail(&mut self, guesser: &Guesser, agent: &str) -> Option<Duration> {
        let delay = try_passkey(&self.throttle, guesser, self.now)?.failed(Some(agent), self.now);
        self.now += delay.unwrap_or_default() + Duration::from_millis(1);
        delay
    }
}

#[test]
fn failures_are_answered_later_and_later_and_a_success_ends_it() {
    let mut patient = Patient::new();
    check_delays(&[50, 100, 200, 400, 800, 1600, 2000, 2000], || patient.fail(&ANN, "agt"));
    // The delay also holds for another caller with the same agent, and for the same caller with
    // another agent.
    check_delays(&[2000], || patient.fail(&BOB, "agt"));
    check_delays(&[2000], || patient.fail(&ANN, "agt_other"));
    try_passkey(&patient.throttle, &ANN, patient.now).unwrap().succeeded(Some("agt"));
    check_delays(&[100, 200], || patient.fail(&BOB, "agt"));
    patient.now += FORGOTTEN_AFTER;
    check_delays(&[50], || patient.fail(&ANN, "agt"));
}

#[test]
fn ids_that_vary_do_not_help() {
    let mut patient = Patient::new();
    let mut n = 0;
    check_delays(&[50, 100, 200, 400, 800, 1600, 2000, 2000], || {
        n += 1;
        patient.fail(&ANN, &format!("agt_{n}"))
    });
}

#[test]
fn without_a_free_slot_a_peer_is_refused_unchecked_and_others_are_not() {
    let throttle = Arc::<Throttle>::default();
    let now = Instant::now();
    assert_eq!(exhaust(&throttle, &ANN, "agt", now), MAX_SLOTS);
    assert!(try_passkey(&throttle, &ANN, now).is_none(), "whichever agent it tries next");
    assert!(try_passkey(&throttle, &BOB, now).is_some());
    assert!(try_passkey(&throttle, &ANN, now + LONGEST).is_some());
}

#[test]
fn a_check_that_goes_on_uses_a_slot_and_gives_it_back() {
    let throttle = Arc::<Throttle>::default();
    let now = Instant::now();
    let mut checks: Vec<Attempt> =
        (0..MAX_SLOTS).map(|_| try_passkey(&throttle, &ANN, now).unwrap()).collect();
    let begin = || Box::pin(throttle.try_passkey(ANN, SlotRule::Needed, now));
    let mut next = begin();
    let mut last = begin();
    assert!(next.as_mut().now_or_never().is_none() && last.as_mut().now_or_never().is_none());
    checks.pop().unwrap().succeeded(Some("agt"));
    let next = next.now_or_never().expect("a check has ended").unwrap();
    assert!(last.as_mut().now_or_never().is_none());
    for check in checks.into_iter().chain([next]) {
        check.failed(Some("agt"), now).unwrap();
    }
    assert!(
        last.now_or_never().expect("all checks have ended").is_none(),
        "all answers are held back"
    );
}

#[test]
fn a_token_that_was_right_or_just_issued_needs_no_slot() {
    let throttle = Arc::<Throttle>::default();
    let now = Instant::now();
    let home = host("127.0.0.1");
    try_token(&throttle, &home, "used", now).unwrap().succeeded(None);
    throttle.remember(&hash("issued"));
    exhaust(&throttle, &home, "agt", now);
    assert!(try_token(&throttle, &home, "other", now).is_none());
    assert!(try_token(&throttle, &home, "issued", now).is_some());
    let used = try_token(&throttle, &home, "used", now).unwrap();
    // It was revoked meanwhile.
    assert_eq!(used.failed(None, now), None, "no slot is free to hold its answer back");
    assert!(try_token(&throttle, &home, "used", now).is_none());
}

#[test]
fn operators_on_the_socket_need_no_slot_and_agents_have_their_own() {
    let local =
        |kind| Peer::Local(LocalPeer { kind, pid: 1, uid: 1000, lineage: Lineage::default() });
    let launch = |id: &str| local(PeerKind::Agent { launch: Some(id.parse().unwrap()) });
    assert_eq!(SlotRule::of(&local(PeerKind::Operator)), SlotRule::Exempt);
    assert_eq!(SlotRule::of(&launch("lch_a")), SlotRule::Needed);
    assert_eq!(SlotRule::of(&Peer::Network("127.0.0.1:1".parse().unwrap())), SlotRule::Needed);
    let throttle = Arc::<Throttle>::default();
    let now = Instant::now();
    exhaust(&throttle, &Guesser::of(&launch("lch_a")), "agt", now);
    assert!(try_passkey(&throttle, &Guesser::of(&launch("lch_b")), now).is_some());
    // Its wrong secrets are held back like those of others, as far as there are slots.
    let operator =
        || throttle.try_passkey(ANN, SlotRule::Exempt, now).now_or_never().flatten().unwrap();
    let n_held = (0..100).filter_map(|_| operator().failed(Some("agt"), now)).count();
    assert_eq!(n_held, MAX_SLOTS);
    operator().succeeded(Some("agt"));
}

#[test]
fn all_hosts_together_have_a_limited_number_of_slots() {
    let throttle = Arc::<Throttle>::default();
    let now = Instant::now();
    let n_checked: usize =
        (0..100).map(|n| exhaust(&throttle, &host(&format!("192.0.2.{n}")), "agt", now)).sum();
    assert_eq!(n_checked, MAX_SLOTS_OF_HOSTS);
    assert!(try_passkey(&throttle, &ANN, now).is_some(), "who comes by the socket");
    assert!(try_passkey(&throttle, &host("192.0.2.200"), now + LONGEST).is_some());
}

#[test]
fn made_up_ids_and_peers_do_not_fill_the_memory() {
    let throttle = Arc::<Throttle>::default();
    let now = Instant::now();
    for n in 0..3 * MAX_KNOWN {
        let guesser = Guesser::User(u32::try_from(n).unwrap());
        try_passkey(&throttle, &guesser, now).unwrap().failed(Some(&"x".repeat(n)), now);
    }
    let state = throttle.lock();
    assert!(state.agents.find(&"x".repeat(MAX_ID_LENGTH)).is_some());
    assert!(state.guessers.find(&Guesser::User(0)).is_none());
}

#[test]
fn a_host_is_what_its_network_calls_one() {
    assert_eq!(host("[2001:db8:1:2::7]"), host("[2001:db8:1:2:3:4:5:6]"));
    assert_ne!(host("[2001:db8:1:2::7]"), host("[2001:db8:1:3::7]"));
    assert_eq!(host("[::ffff:192.0.2.1]"), host("192.0.2.1"));
    assert_ne!(host("192.0.2.2"), host("192.0.2.1"));
}

#[test]
fn all_loopback_addresses_are_one_host() {
    for ip in ["127.0.0.2", "127.255.255.254", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:127.9.8.7]"]
    {
        assert_eq!(host(ip), host("127.0.0.1"), "{ip}");
    }
    assert_ne!(host("[::2]"), host("127.0.0.1"));
}
