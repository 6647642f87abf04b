//! The CPU's registers as the kernel sees them.

use cpu::CpuState;
use kernel::UserRegs;
use units::{ArchId, VirtAddr};

/// [`UserRegs`] over a CPU's state.
#[derive(Debug)]
pub(crate) struct Regs<'a> {
    pub(crate) arch: ArchId,
    pub(crate) state: &'a mut CpuState,
}

impl Regs<'_> {
    fn gprs(&self) -> usize {
        match self.arch {
            ArchId::X86_64 => 16,
            ArchId::Arm64 => 31,
        }
    }
}

/// FPSR, FPCR and V0–V31.
const ARM64_FP_BYTES: usize = 8 + 32 * 16;

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = image.get_mut(at..at + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}

fn get<const N: usize>(image: &[u8], at: usize) -> [u8; N] {
    image.get(at..at + N).and_then(|b| b.try_into().ok()).unwrap_or([0; N])
}

impl UserRegs for Regs<'_> {
    fn arch(&self) -> ArchId {
        self.arch
    }

    fn gpr(&self, n: u8) -> u64 {
        let n = usize::from(n);
        if n < self.gprs() { self.state.r[n] } else { 0 }
    }

    fn set_gpr(&mut self, n: u8, value: u64) {
        let n = usize::from(n);
        if n < self.gprs() {
            self.state.r[n] = value;
        }
    }

    fn pc(&self) -> VirtAddr {
        self.state.pc()
    }

    fn set_pc(&mut self, pc: VirtAddr) {
        self.state.set_pc(pc);
    }

    fn sp(&self) -> VirtAddr {
        self.state.sp(self.arch)
    }

    fn set_sp(&mut self, sp: VirtAddr) {
        self.state.set_sp(self.arch, sp);
    }

    fn tls(&self) -> u64 {
        self.state.tls(self.arch).get()
    }

    fn set_tls(&mut self, tls: u64) {
        self.state.set_tls(self.arch, VirtAddr::new(tls));
    }

    fn gs_base(&self) -> u64 {
        match self.arch {
            ArchId::X86_64 => self.state.x86_regs().gs_base,
            ArchId::Arm64 => 0,
        }
    }

    fn set_gs_base(&mut self, base: u64) {
        if self.arch == ArchId::X86_64 {
            let mut regs = self.state.x86_regs();
            regs.gs_base = base;
            self.state.set_x86_regs(&regs);
        }
    }

    fn flags(&self) -> u64 {
        match self.arch {
            ArchId::X86_64 => self.state.x86_regs().eflags,
            ArchId::Arm64 => self.state.arm64_regs().pstate,
        }
    }

    fn set_flags(&mut self, flags: u64) {
        match self.arch {
            ArchId::X86_64 => {
                let mut regs = self.state.x86_regs();
                regs.eflags = flags;
                self.state.set_x86_regs(&regs);
            }
            ArchId::Arm64 => {
                let mut regs = self.state.arm64_regs();
                regs.pstate = flags;
                self.state.set_arm64_regs(&regs);
            }
        }
    }

    fn fp_image(&self) -> Vec<u8> {
        match self.arch {
            ArchId::X86_64 => cpu::x86_64::fxsave_image(self.state).to_vec(),
            ArchId::Arm64 => {
                let mut image = vec![0; ARM64_FP_BYTES];
                put(&mut image, 0, &self.state.fpsr.to_le_bytes());
                put(&mut image, 4, &self.state.fpcr.to_le_bytes());
                for (n, v) in self.state.v.iter().take(32).enumerate() {
                    put(&mut image, 8 + 16 * n, &v.to_le_bytes());
                }
                image
            }
        }
    }

    fn set_fp_image(&mut self, image: &[u8]) {
        match self.arch {
            ArchId::X86_64 => {
                if let Some(image) = image.first_chunk() {
                    cpu::x86_64::fxrstor_image(self.state, image);
                }
            }
            ArchId::Arm64 => {
                self.state.fpsr = u32::from_le_bytes(get(image, 0));
                self.state.fpcr = u32::from_le_bytes(get(image, 4));
                for (n, v) in self.state.v.iter_mut().take(32).enumerate() {
                    *v = u128::from_le_bytes(get(image, 8 + 16 * n));
                }
            }
        }
    }
}
