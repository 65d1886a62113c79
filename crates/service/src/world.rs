//! The time and the random values that the use cases take from outside. A simulation has its own.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use domain::{Secret, Timestamp};

/// A source of time and random values.
pub trait World: Send + Sync + 'static {
    /// Returns the wall-clock time.
    fn now(&self) -> Timestamp;
    /// Fills `bytes` with random bytes for tokens and salts.
    fn fill(&self, bytes: &mut [u8]);
    /// Returns a text in the grammar of ids that no other call returns.
    fn unique(&self) -> String;
}

impl dyn World {
    /// Returns a new id with the prefix of its kind.
    pub fn new_id<T: std::str::FromStr>(&self, prefix: &str) -> T {
        let text = format!("{prefix}{}", self.unique());
        text.parse().ok().expect("a prefix and a unique text are an id")
    }

    /// Returns a new random token of 192 bits.
    pub fn new_token(&self, prefix: &str) -> Secret {
        let mut bytes = [0; 24];
        self.fill(&mut bytes);
        Secret::new(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes)))
    }

    pub fn new_salt(&self) -> [u8; 16] {
        let mut salt = [0; 16];
        self.fill(&mut salt);
        salt
    }
}

/// The machine's clock and its random numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemWorld;

impl World for SystemWorld {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(jiff::Timestamp::now().as_millisecond())
    }

    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the kernel has random numbers");
    }

    fn unique(&self) -> String {
        uuid::Uuid::now_v7().simple().to_string()
    }
}
