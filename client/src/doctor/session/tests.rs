//! Tables of what is judged from a session's own words.

use super::*;
