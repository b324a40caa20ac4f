//! Flags have their variable, their help and their place in the documentation.

use super::*;

#[test]
fn help_and_version_are_printed_and_are_no_error() {
    for arguments in [vec!["--help"], vec!["serve", "--help"], vec!["--version"]] {
        assert!(
            matches!(parsed(&arguments).unwrap(), Invocation::Print(_)),
            "{arguments:?}"
        );
    }
}

#[test]
fn every_flag_has_an_environment_variable_of_its_name() {
    let command = Serve::command_for_keys();
    for argument in command.get_arguments() {
        let Some(long) = argument.get_long().filter(|long| *long != "help") else {
            continue;
        };
        let expected = format!("KUBEBRIDGE_{}", long.to_uppercase().replace('-', "_"));
        assert_eq!(
            argument.get_env().and_then(|name| name.to_str()),
            Some(expected.as_str())
        );
    }
}

/// The table of flags in the documentation, made of what `--help` says.
fn table_of_flags() -> String {
    let command = Serve::command_for_keys();
    let mut table = "| Flag | Default | |\n|---|---|---|\n".to_owned();
    for argument in command.get_arguments() {
        let (Some(long), Some(help)) = (argument.get_long(), argument.get_help()) else {
            continue;
        };
        if long == "help" {
            continue;
        }
        let choices: Vec<_> = argument
            .get_possible_values()
            .iter()
            .map(|value| value.get_name().to_owned())
            .collect();
        let value = match argument.get_action().takes_values() {
            false => String::new(),
            true if choices.is_empty() => {
                let names = argument.get_value_names().unwrap_or_default();
                format!(" {}", names[0])
            }
            true => format!(" {}", choices.join("\\|")),
        };
        let defaults: Vec<_> = argument
            .get_default_values()
            .iter()
            .map(|text| format!("`{}`", text.to_string_lossy()))
            .collect();
        table += &format!("| `--{long}{value}` | {} | {help} |\n", defaults.join(", "));
    }
    table
}

#[test]
fn the_documentation_has_the_flags_that_help_has() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/traffic-manager.md");
    let text = std::fs::read_to_string(path).unwrap();
    let table = table_of_flags();
    assert!(
        text.contains(&table),
        "docs/traffic-manager.md lacks:\n{table}"
    );
}
