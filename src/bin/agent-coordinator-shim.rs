//! The shim of one agent as a program of its own, without the runtime and the rest of the daemon:
//! so it needs a fraction of the memory. A daemon runs it if it is beside the daemon's program.

use std::env::args_os;

fn main() {
    if shim::is_wanted(&mut args_os()) {
        shim::main(args_os());
    }
    // `doctor` asks for this line.
    println!("agent-coordinator-shim {}", env!("CARGO_PKG_VERSION"));
}
