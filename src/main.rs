//! The program. It runs the command line, or becomes the shim of one agent before anything else: if
//! no `agent-coordinator-shim` is beside it, shims run this program.

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
