//! The keeper of one agent.
