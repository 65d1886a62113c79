//! A look at files that may hang.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use machine::locks::lock;

/// A look at files that may hang. At most one is under way, so that a file system that does not
/// answer holds one thread.
#[derive(Debug, Default)]
pub struct SingleLook<T> {
    last: Arc<Mutex<T>>,
    /// Is closed when the look that was begun last has ended.
    running: Mutex<Option<watch::Receiver<()>>>,
}

impl<T: Clone + Send + 'static> SingleLook<T> {
    /// Returns what `look` finds, or what the look that is under way finds. If that takes longer
    /// than `longest`, the result of the last look that has ended counts. Cancel-safe.
    pub async fn find(&self, longest: Duration, look: impl FnOnce() -> T + Send + 'static) -> T {
        let mut running = {
            let mut running = lock(&self.running);
            let under_way = running.as_ref().filter(|it| it.has_changed().is_ok()).cloned();
            under_way.unwrap_or_else(|| running.insert(self.begin(look)).clone())
        };
        // It sends nothing before its end.
        let _ = tokio::time::timeout(longest, running.changed()).await;
        lock(&self.last).clone()
    }

    /// Begins a look. It stores its result itself, because its callers may be gone by then.
    fn begin(&self, look: impl FnOnce() -> T + Send + 'static) -> watch::Receiver<()> {
        let last = Arc::clone(&self.last);
        let (end, running) = watch::channel(());
        tokio::task::spawn_blocking(move || {
            let found = look();
            *lock(&last) = found;
            // A panic, which was reported where it happened, drops it, too.
            drop(end);
        });
        running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    #[tokio::test]
    async fn a_look_that_hangs_is_not_repeated_and_the_last_result_counts() {
        let single = SingleLook::<u32>::default();
        let brief = Duration::from_millis(10);
        let (go_on, waits) = std::sync::mpsc::channel::<()>();
        assert_eq!(single.find(LONG, || 1).await, 1);
        let hangs = move || {
            let _ = waits.recv();
            2
        };
        assert_eq!(single.find(brief, hangs).await, 1);
        let (begun, begins) = std::sync::mpsc::channel();
        let second = move || {
            let _ = begun.send(());
            9
        };
        assert_eq!(single.find(brief, second).await, 1);
        begins.recv().expect_err("no second look is begun");
        go_on.send(()).expect("the look is under way");
        // It ends without a caller.
        let mut running = lock(&single.running).clone().expect("a look was begun");
        running.changed().await.expect_err("it has ended");
        assert_eq!(*lock(&single.last), 2);
        assert_eq!(single.find(LONG, || 3).await, 3, "its end is noticed");
    }

    #[tokio::test]
    async fn a_look_that_panics_does_not_keep_the_next_one_from_beginning() {
        let single = SingleLook::<u32>::default();
        assert_eq!(single.find(LONG, || panic!("on purpose")).await, 0);
        assert_eq!(single.find(LONG, || 1).await, 1);
    }
}
