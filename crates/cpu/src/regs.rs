//! Registers as the kernel layer sees them: by role for system calls and threads, by name for signals
//! and debuggers. Everything works on a [`CpuState`] plus its [`ArchId`], so saved threads can be
//! edited like the running one.

use crate::flags;
use crate::ir::{FS, GS, Reg, SP, TPIDR};
use crate::state::CpuState;
use units::{ArchId, VirtAddr};

/// x86-64 general registers in slot order, by their names in `user_regs_struct`.
pub const X86_NAMES: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

const RAX: Reg = Reg(0);
const RSP: Reg = Reg(4);
/// RDI, RSI, RDX, R10, R8, R9.
const X86_ARGS: [Reg; 6] = [Reg(7), Reg(6), Reg(2), Reg(10), Reg(8), Reg(9)];

/// x86-64 registers of a signal frame or of `PTRACE_GETREGS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct X86Regs {
    /// RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8–R15.
    pub gpr: [u64; 16],
    /// Instruction pointer.
    pub rip: u64,
    /// EFLAGS.
    pub eflags: u64,
    /// FS base.
    pub fs_base: u64,
    /// GS base.
    pub gs_base: u64,
}

/// arm64 registers of a signal frame: `user_pt_regs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Arm64Regs {
    /// X0–X30.
    pub x: [u64; 31],
    /// Stack pointer.
    pub sp: u64,
    /// Program counter.
    pub pc: u64,
    /// PSTATE: NZCV in bits 31–28, the rest zero (EL0, AArch64).
    pub pstate: u64,
}

impl CpuState {
    /// Number of the system call being made.
    pub fn syscall_nr(&self, arch: ArchId) -> u64 {
        match arch {
            ArchId::X86_64 => self.reg(RAX),
            ArchId::Arm64 => self.reg(Reg(8)),
        }
    }

    /// Argument `n` (0–5) of the system call being made; 0 beyond.
    pub fn syscall_arg(&self, arch: ArchId, n: usize) -> u64 {
        match arch {
            ArchId::X86_64 => X86_ARGS.get(n).map_or(0, |&r| self.reg(r)),
            ArchId::Arm64 => u8::try_from(n).map_or(0, |n| self.reg(Reg(n.min(5)))),
        }
    }

    /// Sets the system call's result (a negative errno as its two's complement).
    pub fn set_syscall_return(&mut self, arch: ArchId, value: u64) {
        let reg = match arch {
            ArchId::X86_64 => RAX,
            ArchId::Arm64 => Reg(0),
        };
        self.set_reg(reg, value);
    }

    /// Makes a system call be executed again: moves `pc` back over the instruction.
    /// `nr` is put back where the instruction takes it from (x86-64 overwrites it with the result).
    pub fn restart_syscall(&mut self, arch: ArchId, nr: u64) {
        let (bytes, reg) = match arch {
            ArchId::X86_64 => (2, RAX),
            ArchId::Arm64 => (4, Reg(8)),
        };
        self.pc = self.pc.wrapping_sub(bytes);
        self.set_reg(reg, nr);
    }

    /// Sets argument registers of a new function call (`n` 0–5) by the C calling convention.
    pub fn set_call_arg(&mut self, arch: ArchId, n: usize, value: u64) {
        const X86_CALL: [Reg; 6] = [Reg(7), Reg(6), Reg(2), Reg(1), Reg(8), Reg(9)];
        let reg = match arch {
            ArchId::X86_64 => X86_CALL.get(n).copied(),
            ArchId::Arm64 => u8::try_from(n).ok().filter(|&n| n < 8).map(Reg),
        };
        if let Some(reg) = reg {
            self.set_reg(reg, value);
        }
    }

    /// Program counter.
    pub fn pc(&self) -> VirtAddr {
        VirtAddr::new(self.pc)
    }
    /// Sets the program counter.
    pub fn set_pc(&mut self, pc: VirtAddr) {
        self.pc = pc.get();
    }

    /// Stack pointer.
    pub fn sp(&self, arch: ArchId) -> VirtAddr {
        VirtAddr::new(self.reg(sp_reg(arch)))
    }
    /// Sets the stack pointer.
    pub fn set_sp(&mut self, arch: ArchId, sp: VirtAddr) {
        self.set_reg(sp_reg(arch), sp.get());
    }

    /// Thread pointer: FS base or TPIDR_EL0.
    pub fn tls(&self, arch: ArchId) -> VirtAddr {
        VirtAddr::new(self.reg(tls_reg(arch)))
    }
    /// Sets the thread pointer.
    pub fn set_tls(&mut self, arch: ArchId, tls: VirtAddr) {
        self.set_reg(tls_reg(arch), tls.get());
    }

    /// The x86-64 register set.
    pub fn x86_regs(&self) -> X86Regs {
        let mut gpr = [0; 16];
        gpr.copy_from_slice(self.r.get(..16).unwrap_or(&[0; 16]));
        X86Regs {
            gpr,
            rip: self.pc,
            eflags: flags::eflags(self),
            fs_base: self.reg(FS),
            gs_base: self.reg(GS),
        }
    }
    /// Sets the x86-64 register set.
    pub fn set_x86_regs(&mut self, regs: &X86Regs) {
        if let Some(slots) = self.r.get_mut(..16) {
            slots.copy_from_slice(&regs.gpr);
        }
        self.pc = regs.rip;
        flags::set_eflags(self, regs.eflags);
        self.set_reg(FS, regs.fs_base);
        self.set_reg(GS, regs.gs_base);
    }

    /// The arm64 register set.
    pub fn arm64_regs(&self) -> Arm64Regs {
        let mut x = [0; 31];
        x.copy_from_slice(self.r.get(..31).unwrap_or(&[0; 31]));
        Arm64Regs { x, sp: self.reg(SP), pc: self.pc, pstate: flags::nzcv(self) }
    }
    /// Sets the arm64 register set.
    pub fn set_arm64_regs(&mut self, regs: &Arm64Regs) {
        if let Some(slots) = self.r.get_mut(..31) {
            slots.copy_from_slice(&regs.x);
        }
        self.set_reg(SP, regs.sp);
        self.pc = regs.pc;
        flags::set_nzcv(self, regs.pstate);
    }
}

fn sp_reg(arch: ArchId) -> Reg {
    match arch {
        ArchId::X86_64 => RSP,
        ArchId::Arm64 => SP,
    }
}

fn tls_reg(arch: ArchId) -> Reg {
    match arch {
        ArchId::X86_64 => FS,
        ArchId::Arm64 => TPIDR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn register_sets_round_trip() {
        let mut s = CpuState::default();
        let gpr = std::array::from_fn(|i| i as u64 * 3);
        let x86 = X86Regs { gpr, rip: 7, eflags: 0x247, fs_base: 1, gs_base: 2 };
        s.set_x86_regs(&x86);
        assert_eq!(s.x86_regs(), x86);
        let x = std::array::from_fn(|i| i as u64 + 100);
        let arm = Arm64Regs { x, sp: 5, pc: 6, pstate: 0x6000_0000 };
        s.set_arm64_regs(&arm);
        assert_eq!(s.arm64_regs(), arm);
    }
}
