//! `tun-device` and `ipv6`: what a session's link needs of the kernel.

use kubebridge_platform::Sys;
use kubebridge_platform::inspect::{Device, ipv6_switched_off, tun_device};

use crate::doctor::{Check, Finding};

/// What helps without a device.
const HELP: &str = "modprobe tun (in a container: --device /dev/net/tun), or connect --mode proxy";

/// Looks at the device, and judges.
pub(super) fn tun(sys: &Sys) -> Finding {
    judge_tun(&tun_device(sys))
}

/// Looks at IPv6, and judges.
pub(super) fn ipv6(sys: &Sys) -> Finding {
    if ipv6_switched_off(sys) {
        let why = "switched off by sysctl: networks of IPv6 are left out";
        Finding::note(Check::Ipv6, "off", why).seen(["net.ipv6.conf.all.disable_ipv6"])
    } else {
        Finding::ok(Check::Ipv6, "on", "there is IPv6")
    }
}

fn judge_tun(device: &Device) -> Finding {
    let check = Check::TunDevice;
    match device {
        Device::Usable => Finding::ok(check, "usable", "it can be opened"),
        Device::Denied => Finding::ok(check, "helper", "it is root's: the helper opens it"),
        Device::Absent => Finding::fail(check, "absent", "it is not there").help(HELP),
        Device::NoDevice => {
            Finding::fail(check, "no-device", "something else is in its place").help(HELP)
        }
        Device::Refused(error) => {
            Finding::fail(check, "refused", format!("it cannot be opened: {error}")).help(HELP)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_device_that_cannot_be_used_fails_with_what_helps() {
        for (device, verdict) in [
            (Device::Usable, Verdict::Ok),
            (Device::Denied, Verdict::Ok),
            (Device::Absent, Verdict::Fail),
            (Device::NoDevice, Verdict::Fail),
            (Device::Refused("no such device".to_owned()), Verdict::Fail),
        ] {
            let finding = judge_tun(&device);
            assert_eq!(finding.verdict, verdict, "{device:?}");
            assert_eq!(finding.help.is_some(), verdict == Verdict::Fail);
        }
    }
}
