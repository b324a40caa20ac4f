//! Durations as people write them.

use std::time::Duration;

/// Reads `500ms`, `2s` or `5m`.
///
/// # Errors
/// When the unit or the number is missing or unknown; the message says how to write it.
pub fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_| "write it like `2s` or `500ms`".to_owned())?;
    let whole = match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        "" => {
            return Err(format!(
                "the unit is missing: write `{number}s` or `{number}ms`"
            ));
        }
        other => return Err(format!("unknown unit `{other}`: use `ms`, `s` or `m`")),
    };
    whole.ok_or_else(|| "too long".to_owned())
}

/// Writes a duration so that [`parse`] reads it.
#[must_use]
pub fn text(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(
            parse(&text(Duration::from_secs(2))),
            Ok(Duration::from_secs(2))
        );
    }

    #[test]
    fn errors_say_how_to_write_it() {
        assert_eq!(
            parse("2").unwrap_err(),
            "the unit is missing: write `2s` or `2ms`"
        );
        assert_eq!(
            parse("2h").unwrap_err(),
            "unknown unit `h`: use `ms`, `s` or `m`"
        );
        for bad in ["", "s", "-1s", "\u{e9}"] {
            assert_eq!(
                parse(bad).unwrap_err(),
                "write it like `2s` or `500ms`",
                "{bad}"
            );
        }
        assert_eq!(parse(&format!("{}m", u64::MAX)).unwrap_err(), "too long");
    }
}
