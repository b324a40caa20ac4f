//! The unit's words. Pure.

use std::path::Path;

/// By which a unit is known as ours.
pub(super) const FIRST_LINE: &str =
    "# Written by `kubebridge install-recovery`, which also removes it (--remove).\n";

/// Makes the unit; `None` if a path cannot stand in one.
///
/// It runs when local files are there and before anything that needs names, and only if a session
/// left a journal. It may write where `recover` writes and nowhere else, and has the capabilities
/// that takes: owner and mode of files that are replaced, links and routes.
pub(super) fn content(program: &Path, state: &Path, hosts: &Path) -> Option<String> {
    let (program, state, hosts) = (word(program)?, word(state)?, word(hosts)?);
    let elsewhere = match Path::new(hosts).starts_with("/etc") {
        true => String::new(),
        false => format!(" {hosts}"),
    };
    Some(format!(
        "{FIRST_LINE}\
[Unit]
Description=Put back what dead kubebridge sessions left on this machine
DefaultDependencies=no
ConditionDirectoryNotEmpty={state}/sessions
RequiresMountsFor=/etc {state}{elsewhere}
After=local-fs.target systemd-remount-fs.service
Before=sysinit.target systemd-resolved.service nss-lookup.target network-pre.target shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
ExecStart={program} recover --progress plain
TimeoutStartSec=60
ProtectSystem=strict
ReadWritePaths=/etc /run {state}{elsewhere}
CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_FSETID CAP_NET_ADMIN
NoNewPrivileges=yes
ProtectHome=read-only
PrivateDevices=yes
ProtectClock=yes
ProtectHostname=yes
ProtectControlGroups=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictAddressFamilies=AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service

[Install]
WantedBy=sysinit.target
"
    ))
}

/// A path that is one word everywhere in a unit. Each setting has rules of its own for blanks,
/// quotes, `%`, `$` and backslashes: no path with one of these is worth being wrong about.
fn word(path: &Path) -> Option<&str> {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "/._+-@:".contains(one);
    let text = path.to_str()?;
    (path.is_absolute() && text.chars().all(is_plain)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_a_unit_or_none() {
        for (path, is_word) in [
            ("/usr/local/bin/kubebridge", true),
            ("/opt/kubebridge-1.2+3@4/bin", true),
            ("/opt/100%/bin", false),
            ("/opt/$HOME/bin", false),
            ("/opt/my tools/bin", false),
            ("/opt/it's/bin", false),
            ("/a\\b", false),
            ("/a\nExecStart=/bin/sh", false),
            ("bin/kubebridge", false),
        ] {
            assert_eq!(word(Path::new(path)).is_some(), is_word, "{path}");
        }
    }

    #[test]
    fn a_hosts_file_elsewhere_may_be_written_there() {
        let unit = |hosts| {
            let program = Path::new("/usr/bin/kubebridge");
            content(program, Path::new("/var/lib/kubebridge"), Path::new(hosts)).unwrap()
        };
        let line = |unit: &str, start: &str| {
            let found = unit.lines().find(|line| line.starts_with(start));
            found.unwrap().to_owned()
        };
        let here = "ReadWritePaths=/etc /run /var/lib/kubebridge";
        assert_eq!(line(&unit("/etc"), "ReadWritePaths="), here);
        let elsewhere = unit("/data/names");
        let there = format!("{here} /data/names");
        assert_eq!(line(&elsewhere, "ReadWritePaths="), there);
        let mounts = "RequiresMountsFor=/etc /var/lib/kubebridge /data/names";
        assert_eq!(line(&elsewhere, "RequiresMountsFor="), mounts);
    }
}
