//! The entities of the store, one file each: their columns, how they are read and written, and
//! their queries.
//!
//! The SQL is the part that SQLite and PostgreSQL have in common; a test holds each statement to
//! it.

pub mod accounts;
pub mod agents;
pub mod assignments;
pub mod attention;
pub mod audit;
mod cells;
pub mod checks;
pub mod comments;
pub mod conversations;
pub mod creation_digests;
pub mod credentials;
pub mod deletions;
pub mod events;
pub mod executions;
mod filter;
pub mod forge_items;
pub mod imports;
pub mod launch_retention;
pub mod launch_spend;
pub mod launches;
pub mod messages;
pub mod notices;
pub mod output_tails;
mod parts;
pub mod pauses;
pub mod project_keys;
pub mod projects;
#[cfg(test)]
mod query_plan;
mod record;
pub mod sessions;
pub mod start_histories;
pub mod startable;
mod store;
pub mod tasks;
mod transaction;
pub mod workspaces;

pub use store::Store;
pub use transaction::{Context, Publish, Transaction, Wake};
