//! Mutexes and read-write locks whose data stays in use after a panic.
//!
//! A thread that panics while it holds a lock poisons it. Each holder here only inserts, removes or
//! replaces values, so the data is complete after a panic, too. One failed task must not make all
//! others fail.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks a mutex, even if it is poisoned. Waits while another thread holds it.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a read-write lock for reading, even if it is poisoned.
pub fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a read-write lock for writing, even if it is poisoned.
pub fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_usable_after_its_holder_panicked() {
        let mutex = Mutex::new(1);
        let both = RwLock::new(1);
        let panics = std::panic::catch_unwind(|| {
            let _first = lock(&mutex);
            let _second = write(&both);
            panic!("on purpose");
        });
        assert!(panics.is_err() && mutex.is_poisoned() && both.is_poisoned());
        *lock(&mutex) += 1;
        *write(&both) += 1;
        assert_eq!((*lock(&mutex), *read(&both)), (2, 2));
    }
}
