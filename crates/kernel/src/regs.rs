//! What the kernel sees of a CPU: [`UserRegs`].

use units::{ArchId, VirtAddr};

/// The user registers of one task, as its CPU holds them.
///
/// General registers have the hardware's numbers: on x86-64 rax, rcx, rdx, rbx, rsp, rbp, rsi,
/// rdi, r8–r15 are 0–15; on arm64 x0–x30 are 0–30. Which of them carry a system call is the ABI,
/// and said here once.
pub trait UserRegs {
    /// Which architecture the registers are of.
    fn arch(&self) -> ArchId;
    /// General register `n`; 0 for a number that does not exist.
    fn gpr(&self, n: u8) -> u64;
    /// Sets general register `n`; nothing for a number that does not exist.
    fn set_gpr(&mut self, n: u8, value: u64);
    /// The next instruction. After a system call instruction, the one behind it.
    fn pc(&self) -> VirtAddr;
    /// Continues elsewhere.
    fn set_pc(&mut self, pc: VirtAddr);
    /// The stack pointer.
    fn sp(&self) -> VirtAddr;
    /// Sets the stack pointer.
    fn set_sp(&mut self, sp: VirtAddr);
    /// The thread pointer: FS base or `TPIDR_EL0`.
    fn tls(&self) -> u64;
    /// Sets the thread pointer.
    fn set_tls(&mut self, tls: u64);
    /// GS base; x86-64 only.
    fn gs_base(&self) -> u64 {
        0
    }
    /// Sets GS base; x86-64 only.
    fn set_gs_base(&mut self, _base: u64) {}
    /// RFLAGS, or NZCV in PSTATE's bit positions.
    fn flags(&self) -> u64;
    /// Sets them.
    fn set_flags(&mut self, flags: u64);
    /// Floating-point and vector state as a signal frame holds it: x86-64 the 512 bytes of
    /// FXSAVE; arm64 FPSR, FPCR (4 bytes each), then V0–V31: 520 bytes.
    fn fp_image(&self) -> Vec<u8>;
    /// Restores what [`UserRegs::fp_image`] made; a guest may have edited it.
    fn set_fp_image(&mut self, image: &[u8]);

    /// The number of the system call that was made.
    fn syscall_nr(&self) -> u64 {
        match self.arch() {
            ArchId::X86_64 => self.gpr(0),
            ArchId::Arm64 => self.gpr(8),
        }
    }
    /// Its six arguments.
    fn syscall_args(&self) -> [u64; 6] {
        match self.arch() {
            ArchId::X86_64 => [7, 6, 2, 10, 8, 9].map(|n| self.gpr(n)),
            ArchId::Arm64 => [0, 1, 2, 3, 4, 5].map(|n| self.gpr(n)),
        }
    }
    /// Sets the value that a system call returns.
    fn set_ret(&mut self, value: u64) {
        self.set_gpr(0, value);
    }
    /// Steps back onto the system call instruction, so that it is made again.
    fn rewind_syscall(&mut self) {
        let len = match self.arch() {
            ArchId::X86_64 => 2,
            ArchId::Arm64 => 4,
        };
        self.set_pc(VirtAddr::new(self.pc().get().wrapping_sub(len)));
    }
}
