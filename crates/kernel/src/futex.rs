//! Futexes: who waits at which word.
//!
//! Source: Linux kernel/futex/; futex(2).

use crate::task::TaskId;
use arch::MmId;
use units::VirtAddr;

/// What a futex word is known by.
// FIDELITY: futex-shared-key — words in shared mappings are known by address space and address
// like private ones, so a futex cannot be shared between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FutexKey {
    pub(crate) mm: MmId,
    pub(crate) at: VirtAddr,
}

/// All waiters, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Futexes {
    waiters: Vec<(FutexKey, TaskId)>,
}

impl Futexes {
    pub(crate) fn wait(&mut self, key: FutexKey, task: TaskId) {
        self.waiters.push((key, task));
    }

    /// The task waits no more.
    pub(crate) fn forget(&mut self, task: TaskId) {
        self.waiters.retain(|w| w.1 != task);
    }

    /// Takes up to `nr` waiters at `key` that `wanted` accepts.
    pub(crate) fn take(
        &mut self,
        key: FutexKey,
        nr: u32,
        wanted: impl Fn(TaskId) -> bool,
    ) -> Vec<TaskId> {
        let mut taken = Vec::new();
        self.waiters.retain(|&(at, task)| {
            let take = at == key && (taken.len() as u64) < u64::from(nr) && wanted(task);
            if take {
                taken.push(task);
            }
            !take
        });
        taken
    }

    /// Moves up to `nr` waiters from one word to another; who moved.
    pub(crate) fn requeue(&mut self, from: FutexKey, to: FutexKey, nr: u32) -> Vec<TaskId> {
        let moved = self.take(from, nr, |_| true);
        self.waiters.extend(moved.iter().map(|&task| (to, task)));
        moved
    }
}
