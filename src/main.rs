//! The binary. It becomes the shim of one agent, before anything else, or runs the command line.

use std::env::args_os;
use std::process::ExitCode;

use agent_coordinator::cli;

fn main() -> ExitCode {
    // This comes first, because a shim has no arguments to parse, no runtime and no log.
    if shim::is_wanted(&mut args_os()) {
        shim::main(args_os());
    }
    cli::main()
}
