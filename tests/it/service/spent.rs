//! The usage of launches by day.

use std::sync::atomic::AtomicI64;

use domain::spend::{Day, Register};
use domain::{Activity, LaunchId, Usage};
use store::rows::launch_spend;

use super::*;

const HOUR: i64 = 3_600_000;
/// The number of a day, two hours before its end.
const DAY: i64 = 20_000;
const BEGIN: i64 = (DAY * 24 + 22) * HOUR;

/// A world whose time of day is set.
struct SetTime(AtomicI64);

impl World for SetTime {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn fill(&self, bytes: &mut [u8]) {
        SystemWorld.fill(bytes);
    }

    fn unique(&self) -> String {
        SystemWorld.unique()
    }
}

/// A server with one open launch.
struct Spending {
    store: Arc<Store>,
    world: Arc<SetTime>,
    service: Service,
    launch: LaunchId,
}

impl Spending {
    async fn begun() -> Self {
        let store = one_pair_with_work().await;
        let world = Arc::new(SetTime(AtomicI64::new(BEGIN)));
        let service = Service::new(store.clone(), world.clone(), settings(), Nudge::new());
        let coordinator = "crd_here".parse().unwrap();
        let start = service.launches.should_start(&key(), Some(&coordinator)).await.unwrap();
        let launch = start.claim.unwrap().launch;
        Self { store, world, service, launch }
    }

    fn restart(&mut self) {
        let (store, world) = (self.store.clone(), self.world.clone());
        self.service = Service::new(store, world, settings(), Nudge::new());
    }

    /// Reports usage so many hours after the begin, and returns the number of commits.
    async fn report(&self, hours: i64, output_tokens: u64) -> u64 {
        self.world.0.store(BEGIN + hours * HOUR, Ordering::SeqCst);
        let before = self.store.n_transactions();
        let activity = Activity { usage: used(output_tokens), ..Activity::default() };
        self.service.launches.report_activity(&self.launch, activity).await.unwrap();
        self.store.n_transactions() - before
    }

    async fn end(&self) {
        let end = ProcessReport::Ended { end: ProcessEnd::Lost, at: self.world.now() };
        self.service.launches.report_process(&self.launch, &[end]).await.unwrap();
    }

    /// Returns the output tokens until the end of each day.
    async fn registers(&self) -> Vec<(i64, u64)> {
        let launch = self.launch.clone();
        let read = self.store.read(move |tx| launch_spend::list_of_launch(tx, &launch));
        let registers = read.await.unwrap().into_iter();
        let day = |Register { day, usage }: Register| (day.number() - DAY, usage.output_tokens);
        registers.map(day).collect()
    }

    /// Returns the usage as the launch has it in the store.
    async fn usage(&self) -> Usage {
        self.store.launch(&self.launch).await.unwrap().unwrap().activity.usage
    }
}

fn used(output_tokens: u64) -> Usage {
    Usage { output_tokens, turns: 1, ..Usage::default() }
}

/// Returns the usage of an agent that was lost.
fn used_when_lost(output_tokens: u64) -> Usage {
    Usage { is_estimated: true, ..used(output_tokens) }
}

#[tokio::test]
async fn a_report_is_stored_at_the_change_of_the_day_and_at_the_end_only() {
    let spending = Spending::begun().await;
    assert_eq!(Day::of(spending.world.now()), Day::from_number(DAY));
    assert_eq!(spending.report(0, 10).await + spending.report(1, 15).await, 0);
    assert_eq!(spending.registers().await, []);
    assert_eq!((spending.report(3, 15).await, spending.report(4, 40).await), (0, 1));
    assert_eq!(spending.registers().await, [(0, 15)]);
    assert_eq!(spending.report(5, 41).await, 0);
    spending.end().await;
    assert_eq!(spending.registers().await, [(0, 15), (1, 41)]);
    assert_eq!(spending.usage().await, used_when_lost(41));
    assert_eq!(spending.report(30, 99).await, 0);
    assert_eq!(spending.usage().await, used_when_lost(41));
}

#[tokio::test]
async fn usage_that_was_received_before_midnight_counts_there_though_the_launch_ends_later() {
    let spending = Spending::begun().await;
    spending.report(1, 15).await;
    spending.world.0.store(BEGIN + 3 * HOUR, Ordering::SeqCst);
    spending.end().await;
    assert_eq!(spending.registers().await, [(0, 15)]);
}

#[tokio::test]
async fn a_server_that_lost_reports_counts_what_is_reported_again_once() {
    let mut spending = Spending::begun().await;
    spending.report(1, 15).await;
    spending.report(3, 20).await;
    spending.restart();
    // The coordinator begins to read the output of the agent anew.
    spending.report(4, 7).await;
    spending.report(4, 20).await;
    spending.end().await;
    assert_eq!(spending.registers().await, [(0, 15), (1, 20)]);
    assert_eq!(spending.usage().await, used_when_lost(20));
}

#[tokio::test]
async fn a_clock_that_goes_back_changes_no_closed_day() {
    let spending = Spending::begun().await;
    spending.report(1, 15).await;
    spending.report(3, 20).await;
    spending.report(1, 25).await;
    spending.end().await;
    assert_eq!(spending.registers().await, [(0, 15), (1, 25)]);
}
