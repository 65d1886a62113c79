//! The integration tests: real files, real sockets, real processes. One binary, one module per subject.

mod bad_input;
mod bridge;
mod cli;
mod contract;
mod control;
mod daemon;
mod faults;
mod footprint;
mod http;
mod layering;
mod main_job;
mod mcp;
mod processes;
mod quickstart;
mod real_clis;
mod redacted;
mod remote;
mod sdks;
mod service;
mod shim;
mod sim;
mod sockets;
mod store;
mod support;
mod units;
mod usage;
