use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const HOUR: i64 = 3_600_000;
/// The hour of the first report.
const BEGIN: i64 = 20_000 * 24 + 22;

/// The registers of one launch, as a table keeps them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Table(BTreeMap<Day, Usage>);

impl Table {
    fn newest(&self) -> Option<Register> {
        self.0.last_key_value().map(|(day, usage)| Register { day: *day, usage: *usage })
    }

    fn received(mut self, hour: i64, usage: Usage) -> Self {
        let day = Day::of(Timestamp::from_millis(hour * HOUR));
        if let Some(register) = Register::after(self.newest(), Register { day, usage }) {
            self.0.insert(register.day, register.usage);
        }
        self
    }

    /// Returns the usage of each day.
    fn days(&self) -> Vec<(i64, Usage)> {
        let mut before = None;
        let mut days = Vec::new();
        for (day, usage) in &self.0 {
            let register = Register { day: *day, usage: *usage };
            days.push((day.number(), register.since(before)));
            before = Some(register);
        }
        days
    }

    fn sum(&self) -> Usage {
        self.days().into_iter().fold(Usage::default(), |sum, (_, usage)| sum.plus(usage))
    }
}

fn used(output_tokens: u64) -> Usage {
    Usage { output_tokens, turns: 1, ..Usage::default() }
}

/// Returns the output tokens of each day after reports at these hours.
fn tokens_by_day(reports: &[(i64, u64)]) -> Vec<(i64, u64)> {
    let table = reports.iter().fold(Table::default(), |table, (hour, output_tokens)| {
        table.received(BEGIN + hour, used(*output_tokens))
    });
    table.days().into_iter().map(|(day, usage)| (day - 20_000, usage.output_tokens)).collect()
}

#[test]
fn a_day_begins_at_midnight_in_utc() {
    let day = |millis| Day::of(Timestamp::from_millis(millis)).number();
    assert_eq!([day(0), day(86_399_999), day(86_400_000), day(-1)], [0, 0, 1, -1]);
}

#[test]
fn usage_counts_in_the_day_in_which_it_was_received() {
    assert_eq!(tokens_by_day(&[(0, 10), (1, 15), (2, 40), (50, 41)]), [(0, 15), (1, 25), (3, 1)]);
}

#[test]
fn a_report_counts_once_however_often_it_comes() {
    let once = tokens_by_day(&[(0, 10), (2, 40)]);
    assert_eq!(once, [(0, 10), (1, 30)]);
    assert_eq!(tokens_by_day(&[(0, 10), (0, 10), (2, 40), (3, 40), (30, 40)]), once);
    // A coordinator that adopts the agent begins to read its output anew.
    assert_eq!(tokens_by_day(&[(0, 10), (2, 40), (3, 0), (3, 7), (3, 40)]), once);
}

#[test]
fn usage_after_a_clock_went_back_counts_in_the_newest_day() {
    assert_eq!(tokens_by_day(&[(1, 10), (3, 20), (1, 25), (2, 30)]), [(0, 10), (1, 20)]);
}

#[test]
fn a_clock_that_jumps_forward_opens_a_day_and_closes_none() {
    let year = 365 * 24;
    assert_eq!(
        tokens_by_day(&[(0, 10), (year, 20), (3, 30), (year + 24, 31)]),
        [(0, 10), (365, 20), (366, 1)]
    );
}

#[test]
fn a_report_without_usage_makes_no_register() {
    assert_eq!(Table::default().received(BEGIN, Usage::default()), Table::default());
}

#[test]
fn an_estimate_counts_in_the_day_that_added_it() {
    let estimated = Usage { is_estimated: true, ..used(12) };
    let table = Table::default().received(BEGIN, used(10)).received(BEGIN + 3, estimated);
    let days: Vec<bool> = table.days().iter().map(|(_, usage)| usage.is_estimated).collect();
    assert_eq!(days, [false, true]);
    assert!(table.sum().is_estimated);
}

#[test]
fn the_greatest_number_stays_the_greatest() {
    let table = Table::default().received(BEGIN, used(u64::MAX)).received(BEGIN + 9, used(5));
    assert_eq!(table.sum(), used(u64::MAX));
}

#[test]
fn a_day_is_written_as_its_date() {
    for (number, text) in [(0, "1970-01-01"), (20_787, "2026-11-30"), (20_788, "2026-12-01")] {
        assert_eq!(Day::from_number(number).to_string(), text);
        assert_eq!(text.parse(), Ok(Day::from_number(number)));
    }
    assert_eq!(Day::from_number(20_787).month(), "2026-11");
    for text in ["", "2026-11", "2026-02-30", "yesterday"] {
        assert_eq!(text.parse::<Day>(), Err(InvalidDay), "{text}");
    }
}

#[test]
fn sums_have_the_usage_from_a_day_on() {
    let of = |launch: &str, task: Option<&str>| Spender {
        launch: launch.parse().unwrap(),
        task: task.map(|task| task.parse().unwrap()),
        agent: "ann".parse().unwrap(),
        project: "shop".parse().unwrap(),
        ai_type: "claude".to_owned(),
    };
    let sums = |by, since: Option<i64>| -> Vec<(Option<String>, u64)> {
        let mut sums = SpendSums::new(by, since.map(Day::from_number));
        let register = |day, tokens| Register { day: Day::from_number(day), usage: used(tokens) };
        sums.add(&of("l1", Some("t")), register(20_787, 10));
        sums.add(&of("l1", Some("t")), register(20_788, 25));
        sums.add(&of("l2", None), register(20_788, 7));
        sums.add_used(&of("l1", Some("t")), Day::from_number(20_789), used(1));
        sums.into_sums().map(|(key, usage)| (key, usage.output_tokens)).collect()
    };
    let key = |text: &str| Some(text.to_owned());
    assert_eq!(sums(SpendBy::Task, None), [(None, 7), (key("t"), 26)]);
    assert_eq!(sums(SpendBy::Agent, None), [(key("ann"), 33)]);
    assert_eq!(sums(SpendBy::Project, Some(20_788)), [(key("shop"), 23)]);
    assert_eq!(sums(SpendBy::Provider, Some(20_789)), [(key("claude"), 1)]);
    assert_eq!(sums(SpendBy::Provider, Some(20_790)), []);
    assert_eq!(
        sums(SpendBy::Day, None),
        [(key("2026-11-30"), 10), (key("2026-12-01"), 22), (key("2026-12-02"), 1)]
    );
    assert_eq!(sums(SpendBy::Month, None), [(key("2026-11"), 10), (key("2026-12"), 23)]);
}

fn any_usage() -> impl Strategy<Value = Usage> {
    let number = || prop_oneof![0..20_u64, Just(u64::MAX)];
    let numbers = (number(), number(), number(), number(), number(), number());
    (numbers, any::<bool>()).prop_map(|(numbers, is_estimated)| {
        let (input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost, turns) =
            numbers;
        Usage {
            input_tokens,
            output_tokens,
            cache_read_tokens,
            cache_write_tokens,
            cost_usd_micros: cost,
            turns,
            is_estimated,
        }
    })
}

fn any_reports() -> impl Strategy<Value = Vec<(i64, Usage)>> {
    proptest::collection::vec((0..200_i64, any_usage()), 0..24)
}

proptest! {
    #[test]
    fn the_days_together_are_the_register(reports in any_reports()) {
        let table =
            reports.iter().fold(Table::default(), |table, (at, usage)| table.received(*at, *usage));
        let greatest = reports.iter().fold(Usage::default(), |all, (_, usage)| all.at_least(*usage));
        prop_assert_eq!(table.newest().map_or_else(Usage::default, |it| it.usage), greatest);
        prop_assert_eq!(table.sum(), greatest);
    }

    #[test]
    fn reports_that_come_again_in_any_order_change_nothing(
        (reports, again) in any_reports()
            .prop_flat_map(|reports| (Just(reports.clone()), Just(reports).prop_shuffle()))
    ) {
        let all = |table: Table, reports: &[(i64, Usage)]| {
            reports.iter().fold(table, |table, (at, usage)| table.received(*at, *usage))
        };
        let once = all(Table::default(), &reports);
        prop_assert_eq!(all(once.clone(), &again), once);
    }

    #[test]
    fn a_closed_day_does_not_change(reports in any_reports()) {
        let mut table = Table::default();
        for (at, usage) in reports {
            let newest = table.newest().map(|newest| newest.day);
            let before = table.0.clone();
            table = table.received(at, usage);
            for (day, usage) in before.range(..newest.unwrap_or(Day::from_number(0))) {
                prop_assert_eq!(table.0.get(day), Some(usage));
            }
        }
    }
}
