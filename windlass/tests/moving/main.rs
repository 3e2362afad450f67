//! Moves between stores: everything survives, a store that was moved refuses, and no stop in between loses anything.
//!
//! PostgreSQL is the one that `WINDLASS_TEST_POSTGRES` names; each test has a schema of its own there.

mod columns;
mod contents;
mod flow;
mod load;
mod places;
mod runs;
