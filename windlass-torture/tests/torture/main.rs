//! Short runs as a user would start them, planted bugs that must be found, and the page that describes both.

mod page;
mod pair;
mod planted;
mod runs;
