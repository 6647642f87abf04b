//! Which task runs on which CPU: one queue per CPU, first come first served.
//!
//! The machine runs a task for a quantum at a time so that CPUs advance together. A task keeps
//! its CPU for [`SLICE_TURNS`] quanta, as Linux lets it run until the timer interrupt, and then
//! goes to the end of the queue; so does one that yields. A CPU with nothing to do takes the
//! first task that may run on it from the CPU with the lowest index that has more than one.
//! Everything is a function of the calls made, so runs repeat.

use crate::task::TaskId;
use std::collections::VecDeque;
use units::CpuId;

/// A set of CPUs (`cpu_set_t`), up to 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuMask([u64; 16]);

impl CpuMask {
    /// Bytes of the mask.
    pub const BYTES: usize = 128;

    /// No CPU.
    pub const EMPTY: CpuMask = CpuMask([0; 16]);

    /// The first `nr` CPUs.
    pub fn first(nr: u16) -> CpuMask {
        let mut mask = CpuMask::EMPTY;
        for cpu in 0..nr {
            mask.insert(CpuId::new(cpu));
        }
        mask
    }

    /// Adds a CPU; one beyond 1023 is ignored.
    pub fn insert(&mut self, cpu: CpuId) {
        if let Some(word) = self.0.get_mut(cpu.index() / 64) {
            *word |= 1 << (cpu.index() % 64);
        }
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0.get(cpu.index() / 64).is_some_and(|word| word >> (cpu.index() % 64) & 1 != 0)
    }

    /// CPUs in both.
    pub fn and(&self, other: &CpuMask) -> CpuMask {
        let mut both = *self;
        for (word, mask) in both.0.iter_mut().zip(other.0) {
            *word &= mask;
        }
        both
    }

    /// Whether no CPU is in the set.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 16]
    }

    pub(crate) fn to_bytes(self) -> [u8; CpuMask::BYTES] {
        let mut bytes = [0; CpuMask::BYTES];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> CpuMask {
        let mut mask = CpuMask::EMPTY;
        for (word, chunk) in mask.0.iter_mut().zip(bytes.chunks(8)) {
            for (i, &byte) in chunk.iter().enumerate() {
                *word |= u64::from(byte) << (8 * i);
            }
        }
        mask
    }
}

/// Quanta that a task runs before another one of its CPU has its turn. With the machine's 100,000
/// instructions each, about the 10 ms of a kernel with HZ=100.
const SLICE_TURNS: u32 = 100;

/// The run queues.
#[derive(Debug)]
pub(crate) struct Sched {
    queues: Vec<VecDeque<TaskId>>,
    current: Vec<Option<TaskId>>,
    /// Quanta that the current task may still run.
    turns_left: Vec<u32>,
}

impl Sched {
    pub(crate) fn new(cpus: u16) -> Sched {
        let nr = usize::from(cpus.max(1));
        Sched {
            queues: vec![VecDeque::new(); nr],
            current: vec![None; nr],
            turns_left: vec![0; nr],
        }
    }

    pub(crate) fn cpus(&self) -> impl Iterator<Item = CpuId> + use<> {
        (0u16..).take(self.queues.len()).map(CpuId::new)
    }

    /// The task that `cpu` runs.
    pub(crate) fn current(&self, cpu: CpuId) -> Option<TaskId> {
        self.current.get(cpu.index()).copied().flatten()
    }

    /// Tasks on `cpu`, running or waiting.
    pub(crate) fn load(&self, cpu: CpuId) -> usize {
        let waiting = self.queues.get(cpu.index()).map_or(0, VecDeque::len);
        waiting + usize::from(self.current(cpu).is_some())
    }

    /// A task becomes runnable on `cpu`.
    pub(crate) fn enqueue(&mut self, cpu: CpuId, task: TaskId) {
        debug_assert!(!self.queues.iter().any(|q| q.contains(&task)), "queued once");
        if let Some(queue) = self.queues.get_mut(cpu.index()) {
            queue.push_back(task);
        }
    }

    /// A task is not runnable any more, wherever it is.
    pub(crate) fn remove(&mut self, task: TaskId) {
        for queue in &mut self.queues {
            queue.retain(|&t| t != task);
        }
        for current in &mut self.current {
            current.take_if(|t| *t == task);
        }
    }

    /// The CPU with the least to do among those allowed; `prefer` wins a tie.
    pub(crate) fn place(&self, allowed: &CpuMask, prefer: CpuId) -> CpuId {
        let cost = |cpu: CpuId| (self.load(cpu), cpu != prefer, cpu);
        self.cpus().filter(|&cpu| allowed.contains(cpu)).min_by_key(|&c| cost(c)).unwrap_or(prefer)
    }

    /// The current task of `cpu` gives up the rest of its slice.
    pub(crate) fn give_up(&mut self, cpu: CpuId) {
        if let Some(left) = self.turns_left.get_mut(cpu.index()) {
            *left = 0;
        }
    }

    /// Takes the next task for `cpu`: the current one if its slice is not over; else that one goes
    /// to the end of the queue.
    pub(crate) fn next(
        &mut self,
        cpu: CpuId,
        may_run_here: impl Fn(TaskId) -> bool,
    ) -> Option<TaskId> {
        let current = self.current(cpu);
        let left = self.turns_left.get_mut(cpu.index())?;
        if *left > 0 && current.is_some() {
            *left -= 1;
            return current;
        }
        *left = SLICE_TURNS - 1;
        let previous = self.current.get_mut(cpu.index())?.take();
        let queue = self.queues.get_mut(cpu.index())?;
        queue.extend(previous);
        let mut next = queue.pop_front();
        if next.is_none() {
            next = self.steal(may_run_here);
        }
        *self.current.get_mut(cpu.index())? = next;
        next
    }

    fn steal(&mut self, may_run_here: impl Fn(TaskId) -> bool) -> Option<TaskId> {
        for (queue, current) in self.queues.iter_mut().zip(&self.current) {
            if queue.len() + usize::from(current.is_some()) < 2 {
                continue;
            }
            if let Some(at) = queue.iter().position(|&t| may_run_here(t)) {
                return queue.remove(at);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_take_turns_and_idle_cpus_take_over() {
        let mut sched = Sched::new(2);
        let (zero, one) = (CpuId::new(0), CpuId::new(1));
        for id in 1..=3 {
            sched.enqueue(zero, TaskId(id));
        }
        for _ in 0..SLICE_TURNS {
            assert_eq!(sched.next(zero, |_| true), Some(TaskId(1)));
        }
        assert_eq!(sched.next(zero, |_| true), Some(TaskId(2)));
        sched.give_up(zero);
        assert_eq!(sched.next(one, |t| t == TaskId(1)), Some(TaskId(1)));
        assert_eq!(sched.next(zero, |_| true), Some(TaskId(3)));
        assert_eq!(sched.load(zero), 2);
        sched.remove(TaskId(3));
        assert_eq!(sched.place(&CpuMask::first(2), one), one);
    }

    #[test]
    fn masks_survive_the_trip_through_bytes() {
        let mut mask = CpuMask::first(3);
        mask.insert(CpuId::new(1023));
        assert_eq!(CpuMask::from_bytes(&mask.to_bytes()), mask);
        assert!(mask.and(&CpuMask::EMPTY).is_empty());
    }
}
