//! The common parts of the benchmarks: a daemon in a folder of its own, clients of its two sockets,
//! the agents that it starts, and the table in which the figures are shown.
#![allow(dead_code, reason = "each benchmark uses a part of it")]

pub mod agent;
pub mod bed;
pub mod clients;
pub mod figures;
pub mod proc;
