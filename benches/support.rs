//! The common parts of the benchmarks: a daemon in a folder of its own, clients of its sockets, its
//! agents, and the table of figures.
#![allow(dead_code, reason = "each benchmark uses a part of it")]

pub mod agent;
pub mod bed;
pub mod clients;
pub mod figures;
pub mod proc;
