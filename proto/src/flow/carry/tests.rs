//! Both ends of a flow over HTTP/2 in memory, through wires that break.

mod credits;
mod cuts;
mod ends;
mod limits;
mod world;
