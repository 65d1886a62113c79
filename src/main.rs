//! The binary: a keeper of one agent, before anything else, or the command line.

use std::env::args_os;
use std::process::ExitCode;

use agent_coordinator::{cli, shim};

fn main() -> ExitCode {
    // First of all: a shim has no arguments to parse, no runtime and no log.
    if shim::is_wanted(&mut args_os()) {
        shim::main(args_os());
    }
    cli::main()
}
