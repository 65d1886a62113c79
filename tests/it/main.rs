//! The integration tests: real files, real sockets, real processes. One binary, one module per subject.

mod processes;
mod shim;
mod store;
mod support;
