//! End-to-end tests: the two programs against real parts, in the lab of this crate.
//!
//! Each test has a lab of its own and makes many checks in it, because a start costs seconds.
//! They need root and what `tests/setup` installs; a missing part fails them.

mod access;
mod api_server;
mod background;
mod bad_input;
mod boot;
mod changes;
mod credentials;
mod dataplane;
mod demo;
mod dns_tools;
mod dns_trace;
mod doctor;
mod drift;
mod figures;
mod helper;
mod helper_kills;
mod hosts_shapes;
mod image;
mod install;
mod kills;
mod loops;
mod manager;
mod manager_replaced;
mod modes;
mod names;
mod namespaces;
mod outage;
mod parts;
mod reach;
mod restore;
mod routing;
mod several;
