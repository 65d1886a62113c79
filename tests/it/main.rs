//! The integration tests: real files, real sockets, real processes. One binary, one module per subject.

mod daemon;
mod footprint;
mod main_job;
mod processes;
mod shim;
mod store;
mod support;
