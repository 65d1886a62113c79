//! What a keeper that only waits has of the program in its page tables: as much as the system leaves it.

/// Nothing: no such advice is known to be free of effects here.
pub const fn let_go_of_program() {}
