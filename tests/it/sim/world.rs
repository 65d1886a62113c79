//! Time, chance and memory of one history. The clock moves only when all tasks wait. The dice give
//! the same numbers for the same seed. The chronicle records what happened.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use domain::Timestamp;
use service::world::World;
use supervisor::process::BootInstant;
use tokio::time::Instant;

/// Splitmix64: small, and the same everywhere.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Returns dice for one purpose of a seed. Dice for different purposes are independent.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut dice = Self(seed);
        let mixed = dice.next();
        Self(mixed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).unwrap()
    }

    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }

    /// Returns a duration between two numbers of milliseconds.
    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from + 1))
    }
}

/// Lets time pass. It passes at once when all tasks wait for it.
pub async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// The sleep of a machine, with the time that it has slept so far. Everything on it stands still
/// meanwhile, and so does one of its clocks. The other clock, which start deadlines use, goes on.
pub struct Slumber(Mutex<Slept>);

struct Slept {
    /// The last sleep.
    from: Instant,
    until: Instant,
    before: Duration,
}

impl Default for Slumber {
    fn default() -> Self {
        let now = Instant::now();
        Self(Mutex::new(Slept { from: now, until: now, before: Duration::ZERO }))
    }
}

impl Slumber {
    /// Makes the machine fall asleep, or sleep longer.
    pub fn begin(&self, lasts: Duration) {
        let (now, mut slept) = (Instant::now(), self.0.lock().unwrap());
        if now >= slept.until {
            let before = slept.before + (slept.until - slept.from);
            *slept = Slept { from: now, until: now, before };
        }
        slept.until = slept.until.max(now + lasts);
    }

    /// Returns the time when the machine wakes or woke.
    pub fn until(&self) -> Instant {
        self.0.lock().unwrap().until
    }

    pub fn is_on(&self) -> bool {
        Instant::now() < self.until()
    }

    /// Returns when the machine is awake.
    pub async fn over(&self) {
        while self.is_on() {
            tokio::time::sleep_until(self.until()).await;
        }
    }

    pub fn slept(&self) -> Duration {
        let slept = self.0.lock().unwrap();
        slept.before + (slept.until.min(Instant::now()) - slept.from)
    }

    /// Returns the time of the clock that stands still.
    pub fn steady_now(&self) -> Instant {
        Instant::now() - self.slept()
    }
}

/// The clock and the randomness of the server and of all machines.
pub struct SimWorld {
    begin: Instant,
    dice: Mutex<Dice>,
    n_unique: AtomicU64,
    /// The time by which the wall clock is ahead, in milliseconds.
    ahead: AtomicI64,
    has_jumped: AtomicBool,
    /// The greatest change of the clock at once.
    farthest: AtomicU64,
}

const BEGIN: i64 = 1_700_000_000_000;
/// The machines have been up for a while.
const UPTIME: Duration = Duration::from_hours(1);

impl SimWorld {
    pub fn new(seed: u64) -> Self {
        Self {
            begin: Instant::now(),
            dice: Mutex::new(Dice::new(seed, 1)),
            n_unique: AtomicU64::new(0),
            ahead: AtomicI64::new(0),
            has_jumped: AtomicBool::new(false),
            farthest: AtomicU64::new(0),
        }
    }

    /// Sets the wall clock on all machines.
    pub fn set_clock(&self, ahead_millis: i64) {
        let before = self.ahead.swap(ahead_millis, Ordering::Relaxed);
        self.farthest.fetch_max(before.abs_diff(ahead_millis), Ordering::Relaxed);
        self.has_jumped.store(true, Ordering::Relaxed);
    }

    pub fn has_jumped(&self) -> bool {
        self.has_jumped.load(Ordering::Relaxed)
    }

    /// Returns whether a new row may look older than this.
    pub fn has_jumped_by(&self, age: Duration) -> bool {
        Duration::from_millis(self.farthest.load(Ordering::Relaxed)) >= age
    }

    pub fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Returns the time of the clock that start deadlines use on all machines, asleep or not.
    pub fn boot_now(&self) -> BootInstant {
        // The type can only be made by reading the clock or by deserialising.
        let zero: BootInstant = serde_json::from_str("0").unwrap();
        zero + UPTIME + self.elapsed()
    }

    /// Returns the moment when the boot clock shows `at`.
    pub fn instant_of(&self, at: BootInstant) -> Instant {
        self.begin + Duration::from_millis(at.as_millis()).saturating_sub(UPTIME)
    }
}

impl World for SimWorld {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(BEGIN + self.ahead.load(Ordering::Relaxed)) + self.elapsed()
    }

    fn fill(&self, bytes: &mut [u8]) {
        let mut dice = self.dice.lock().unwrap();
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&dice.next().to_le_bytes()[..chunk.len()]);
        }
    }

    fn unique(&self) -> String {
        format!("{:06}", self.n_unique.fetch_add(1, Ordering::Relaxed))
    }
}

/// The output of a history: all its lines, or only its violations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    Told,
    Silent,
}

/// The chronicle: the lines of a history and its violations.
pub struct Chronicle {
    begin: Instant,
    telling: Telling,
    lines: Mutex<Vec<String>>,
    violations: Mutex<Vec<String>>,
}

impl Chronicle {
    pub fn new(telling: Telling) -> Self {
        Self {
            begin: Instant::now(),
            telling,
            lines: Mutex::default(),
            violations: Mutex::default(),
        }
    }

    pub fn note(&self, line: impl FnOnce() -> String) {
        if self.telling == Telling::Told {
            self.write(&line());
        }
    }

    /// Notes a broken promise.
    pub fn violation(&self, what: String) {
        self.write(&format!("!! {what}"));
        self.violations.lock().unwrap().push(what);
    }

    pub fn is_clean(&self) -> bool {
        self.violations.lock().unwrap().is_empty()
    }

    pub fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap().clone()
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    fn write(&self, line: &str) {
        let at = self.begin.elapsed().as_secs_f64();
        self.lines.lock().unwrap().push(format!("{at:>10.3}  {line}"));
    }
}
