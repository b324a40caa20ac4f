//! Which of the machine's sessions a command is about.

use crate::cli::Global;
use crate::failure::{Exit, Failure};
use crate::status::client::{Session, all_sessions};

/// How many sessions a command can be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// All that were not excluded.
    All,
    /// One: several are an error that names them.
    One,
}

/// A session and what people know it by.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    id: String,
    /// `None` also when it does not answer.
    context: Option<String>,
    manager: String,
}

/// Connects to the sessions that are meant by `--session` or `--context`, or to all.
///
/// # Errors
///
/// None is meant, or several where only one can be.
pub(super) async fn chosen(global: &Global, reach: Reach) -> Result<Vec<Session>, Failure> {
    let mut found = all_sessions().await?;
    let wanted = global.session.as_ref().map(ToString::to_string);
    if global.context.is_none() && wanted.is_none() && (reach == Reach::All || found.len() < 2) {
        return Ok(found);
    }
    let mut known = Vec::with_capacity(found.len());
    for session in found {
        let id = session.id.clone();
        let (context, manager) = match session.status().await {
            Ok(report) => (report.context, report.manager),
            Err(error) => (None, format!("{error:#}")),
        };
        known.push(Known {
            id,
            context,
            manager,
        });
    }
    let ids = choose(&known, wanted.as_deref(), global.context.as_deref(), reach)?;
    // A connection serves one question, and that was asked.
    found = all_sessions().await?;
    found.retain(|session| ids.contains(&session.id));
    Ok(found)
}

fn choose(
    known: &[Known],
    wanted: Option<&str>,
    context: Option<&str>,
    reach: Reach,
) -> Result<Vec<String>, Failure> {
    let is_meant = |one: &&Known| {
        wanted.is_none_or(|id| one.id == id)
            && context.is_none_or(|context| one.context.as_deref() == Some(context))
    };
    let meant: Vec<_> = known.iter().filter(is_meant).collect();
    match meant.as_slice() {
        [] => Err(none(known, wanted, context)),
        [_] => Ok(vec![meant[0].id.clone()]),
        several if reach == Reach::One => Err(Failure::usage(format!(
            "{} sessions run here: {}",
            several.len(),
            words(several)
        ))
        .with_hint("say which by --session ID or --context NAME")),
        several => Ok(several.iter().map(|one| one.id.clone()).collect()),
    }
}

fn none(known: &[Known], wanted: Option<&str>, context: Option<&str>) -> Failure {
    let meant = match (wanted, context) {
        (Some(id), _) => format!("no session {id}"),
        (None, Some(context)) => format!("no session with context {context}"),
        (None, None) => "no session".to_owned(),
    };
    if known.is_empty() {
        return Failure::message(Exit::Other, meant).with_hint("kubebridge connect");
    }
    let all: Vec<_> = known.iter().collect();
    Failure::message(Exit::Other, format!("{meant}; there are: {}", words(&all)))
        .with_hint("kubebridge status shows them")
}

fn words(sessions: &[&Known]) -> String {
    let words = sessions.iter().map(|one| match &one.context {
        Some(context) => format!("{} (context {context})", one.id),
        None => format!("{} (manager {})", one.id, one.manager),
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<Known> {
        let one = |id: &str, context: Option<&str>| Known {
            id: id.to_owned(),
            context: context.map(str::to_owned),
            manager: "127.0.0.1:7080".to_owned(),
        };
        vec![
            one("0000000a", Some("alpha")),
            one("0000000b", Some("beta")),
            one("0000000c", None),
        ]
    }

    #[test]
    fn a_session_is_chosen_by_id_or_context_and_all_by_neither() {
        let of = |wanted, context, reach| choose(&known(), wanted, context, reach).unwrap();

        assert_eq!(of(Some("0000000c"), None, Reach::One), ["0000000c"]);
        assert_eq!(of(None, Some("beta"), Reach::One), ["0000000b"]);
        assert_eq!(
            of(Some("0000000a"), Some("alpha"), Reach::All),
            ["0000000a"]
        );
        assert_eq!(of(None, None, Reach::All).len(), 3);
    }

    #[test]
    fn an_ambiguous_command_names_the_sessions_and_how_to_choose() {
        let failure = choose(&known(), None, None, Reach::One).unwrap_err();

        assert_eq!(failure.exit, Exit::Usage);
        assert_eq!(
            failure.to_string(),
            "3 sessions run here: 0000000a (context alpha), 0000000b (context beta), 0000000c (manager 127.0.0.1:7080)\nhint: say which by --session ID or --context NAME"
        );
    }

    #[test]
    fn a_session_that_is_not_there_is_an_error_that_names_those_that_are() {
        for (wanted, context, expected) in [
            (Some("deadbeef"), None, "no session deadbeef; there are: "),
            (None, Some("gamma"), "no session with context gamma; there"),
            (Some("0000000a"), Some("beta"), "no session 0000000a; there"),
        ] {
            let failure = choose(&known(), wanted, context, Reach::All).unwrap_err();
            assert!(failure.to_string().starts_with(expected), "{failure}");
        }
        let failure = choose(&[], Some("deadbeef"), None, Reach::One).unwrap_err();
        assert_eq!(failure.error.to_string(), "no session deadbeef");
    }
}
