//! Who a process is, and what it may do: credentials(7), capabilities(7).

/// A capability, by its number. Source: Linux include/uapi/linux/capability.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cap {
    /// Setting group ids at will.
    SetGid = 6,
    /// Setting user ids at will.
    SetUid = 7,
    /// Locking memory beyond RLIMIT_MEMLOCK.
    IpcLock = 14,
    /// Mapping the lowest addresses.
    SysRawio = 17,
    /// Raising hard limits.
    SysResource = 24,
}

impl Cap {
    const fn bit(self) -> u64 {
        1 << self as u8
    }
}

/// Every capability of Linux 6.12.
pub(crate) const ALL: u64 = (1 << 41) - 1;

/// Three sets of capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caps {
    pub(crate) effective: u64,
    pub(crate) permitted: u64,
    pub(crate) inheritable: u64,
}

/// Real, effective and saved id of the user, and the same of the group.
// FIDELITY: creds-per-process — threads of a process share their credentials, as C libraries
// make it look; files have no owners, so ids decide over limits and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Creds {
    pub(crate) uid: [u32; 3],
    pub(crate) gid: [u32; 3],
    pub(crate) caps: Caps,
}

impl Creds {
    /// User and group of the same number, with all capabilities if it is root.
    pub(crate) fn of(id: u32) -> Creds {
        let all = if id == 0 { ALL } else { 0 };
        let caps = Caps { effective: all, permitted: all, inheritable: 0 };
        Creds { uid: [id; 3], gid: [id; 3], caps }
    }

    /// Whether the process may do what `cap` allows.
    pub(crate) fn capable(&self, cap: Cap) -> bool {
        self.caps.effective & cap.bit() != 0
    }

    /// Takes new user ids. Source: Linux security/commoncap.c `cap_task_fix_setuid()`,
    /// `cap_emulate_setxuid()`.
    pub(crate) fn set_uid(&mut self, uid: [u32; 3]) {
        let old = std::mem::replace(&mut self.uid, uid);
        if old.contains(&0) && !uid.contains(&0) {
            self.caps.permitted = 0;
            self.caps.effective = 0;
        }
        match (old[1] == 0, uid[1] == 0) {
            (true, false) => self.caps.effective = 0,
            (false, true) => self.caps.effective = self.caps.permitted,
            _ => {}
        }
    }

    /// Takes new capabilities, if they are no more than was permitted. Source: Linux
    /// security/commoncap.c `cap_capset()`.
    pub(crate) fn set_caps(&mut self, new: Caps) -> bool {
        let now = self.caps;
        let allowed = new.inheritable & !(now.inheritable | now.permitted) == 0
            && new.permitted & !now.permitted == 0
            && new.effective & !new.permitted == 0;
        if allowed {
            self.caps = new;
        }
        allowed
    }

    /// Whether the bounding set holds the capability of this number; `None` if there is no such.
    pub(crate) fn bounds(number: u64) -> Option<bool> {
        (number < 41).then_some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_root_drops_what_root_may() {
        let mut creds = Creds::of(0);
        assert!(creds.capable(Cap::SysResource));
        creds.set_uid([0, 1000, 0]);
        assert!(!creds.capable(Cap::SysResource) && creds.caps.permitted == ALL);
        creds.set_uid([0, 0, 0]);
        assert!(creds.capable(Cap::SysResource));
        creds.set_uid([1000; 3]);
        assert_eq!(creds.caps.permitted, 0);
        assert!(!Creds::of(1000).capable(Cap::SetUid));
    }

    #[test]
    fn capabilities_are_given_up_for_good() {
        let mut creds = Creds::of(0);
        let without = ALL & !Cap::SysResource.bit();
        let fewer = Caps { effective: without, permitted: without, inheritable: 0 };
        assert!(creds.set_caps(fewer) && !creds.capable(Cap::SysResource));
        assert!(!creds.set_caps(Caps { effective: ALL, permitted: ALL, inheritable: 0 }));
        assert!(!creds.set_caps(Caps { effective: ALL, ..fewer }));
    }
}
