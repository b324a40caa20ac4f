//! stub
use crate::cli::{DemoArgs, Global};
use crate::failure::Failure;
/// stub
pub async fn demo(_: &DemoArgs, _: &Global) -> Result<(), Failure> { Ok(()) }
