//! The bodies of the REST routes: the requests of clients and the answers of the server.
//!
//! ```text
//!  service ──► web ──► answer ───JSON───► cli
//!              web ◄── request ◄──JSON─── cli
//! ```
//!
//! `web` and `cli` use the same types, so that neither knows the other. `/openapi.json` describes
//! these types.
//!
//! JSON is in camelCase. A request with an unknown field is refused, and a missing field has its
//! default. Clients ignore unknown fields of an answer, so that they may be older than the server.
//!
//! `From` makes answers of the values of `domain`, and edits of `domain` of requests. `web` makes the
//! answers that need a view of `service`, which this crate does not know.

pub mod activity;
pub mod agents;
pub mod assignments;
pub mod attention;
pub mod chat;
pub mod comments;
pub mod configuration;
pub mod credentials;
pub mod events;
pub mod executions;
pub mod export;
pub mod forge;
pub mod history;
pub mod launches;
pub mod lookup;
pub mod notices;
pub mod operate;
pub mod projects;
pub mod removals;
pub mod sessions;
pub mod settings;
pub mod spend;
pub mod status;
pub mod store;
pub mod tasks;
pub mod totals;
pub mod waiting;
pub mod why;
pub mod workspaces;

/// The greatest number of items in a part of a list.
pub const MAX_LIMIT: usize = 1000;
