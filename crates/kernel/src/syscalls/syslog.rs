//! `syslog()`: the kernel's log, for klogctl(3) and dmesg.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::{Call, SysResult};
use crate::counts::CountsByScope;
use crate::errno::EINVAL;
use crate::kernel::Kernel;
use crate::log::LOG_BYTES;
use arch::Platform;

/// `SYSLOG_ACTION_*`
mod action {
    pub(super) const CLOSE: i32 = 0;
    pub(super) const OPEN: i32 = 1;
    pub(super) const READ_ALL: i32 = 3;
    pub(super) const READ_CLEAR: i32 = 4;
    pub(super) const CLEAR: i32 = 5;
    pub(super) const CONSOLE_OFF: i32 = 6;
    pub(super) const CONSOLE_ON: i32 = 7;
    pub(super) const CONSOLE_LEVEL: i32 = 8;
    pub(super) const SIZE_UNREAD: i32 = 9;
    pub(super) const SIZE_BUFFER: i32 = 10;
}

/// Source: Linux kernel/printk/printk.c `do_syslog()`.
pub(super) fn syslog<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let (what, buffer, len) = (c.int::<0>(), c.addr::<1>(), c.int::<2>());
    match what {
        action::CLOSE | action::OPEN | action::CONSOLE_OFF | action::CONSOLE_ON => Ok(0),
        action::READ_ALL | action::READ_CLEAR => {
            if buffer.get() == 0 || len < 0 {
                return Err(EINVAL.into());
            }
            let text = k.log.syslog();
            let text = last_lines(&text, usize::try_from(len).unwrap_or_default());
            k.write_user(c.task, buffer, text.as_bytes())?;
            if what == action::READ_CLEAR {
                k.log.clear();
            }
            Ok(text.len() as u64)
        }
        action::CLEAR => {
            k.log.clear();
            Ok(0)
        }
        action::CONSOLE_LEVEL if (1..=8).contains(&len) => Ok(0),
        action::SIZE_UNREAD => Ok(k.log.syslog().len() as u64),
        action::SIZE_BUFFER => Ok(LOG_BYTES as u64),
        _ => Err(EINVAL.into()),
    }
}

/// As many whole lines from the end as fit.
fn last_lines(text: &str, room: usize) -> &str {
    let mut rest = text;
    while rest.len() > room {
        rest = rest.split_once('\n').map_or("", |(_, later)| later);
    }
    rest
}
