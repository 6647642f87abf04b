//! The signal frame of arm64.
//!
//! Source: Linux arch/arm64/include/uapi/asm/sigcontext.h, arch/arm64/kernel/signal.c
//! `setup_rt_frame()`.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::{Action, AltStack, Frame, Words, altstack_from, word};
use crate::counts::CountsByScope;
use crate::errno::EFAULT;
use crate::kernel::Kernel;
use crate::regs::UserRegs;
use crate::task::TaskId;
use arch::Platform;
use mm::Errno;
use units::VirtAddr;

const UC: usize = 128;
const SIGMASK: usize = UC + 40;
const MCONTEXT: usize = UC + 176;
const REGS: usize = MCONTEXT + 8;
const RESERVED: usize = MCONTEXT + 288;
const SIZE: usize = RESERVED + 4096;
const FPSIMD_MAGIC: u64 = 0x4650_8001;
const FPSIMD_SIZE: u64 = 528;
const ESR_MAGIC: u64 = 0x4553_5201;
const ESR_SIZE: u64 = 16;
/// N, Z, C, V: all of PSTATE that user code may set.
const NZCV: u64 = 0xf000_0000;

pub(super) fn setup<P: Platform>(
    kernel: &mut Kernel<P>,
    task: TaskId,
    regs: &mut dyn UserRegs,
    frame: &Frame<'_>,
) -> Result<(), Errno>
where
    P::Sink: CountsByScope,
{
    let stack = frame.stack(regs.sp(), 0);
    let record = stack.wrapping_sub(16) & !15;
    let at = record.wrapping_sub(SIZE as u64);

    let mut words = Words::default();
    words.bytes(&frame.info.to_bytes());
    words.push(0);
    words.push(0);
    words.bytes(&frame.altstack.to_bytes(regs.sp()));
    words.push(frame.mask.0);
    words.pad_to(MCONTEXT);
    let trap = frame.info.trap();
    words.push(trap.map_or(0, |t| t.addr.get()));
    for n in 0..31 {
        words.push(regs.gpr(n));
    }
    words.push(regs.sp().get());
    words.push(regs.pc().get());
    words.push(regs.flags());
    words.pad_to(RESERVED);
    words.push(FPSIMD_MAGIC | FPSIMD_SIZE << 32);
    words.bytes(&regs.fp_image());
    words.pad_to(RESERVED + 528);
    if let Some(trap) = trap {
        words.push(ESR_MAGIC | ESR_SIZE << 32);
        words.push(trap.esr);
    }
    words.pad_to(SIZE);
    words.push(regs.gpr(29));
    words.push(regs.gpr(30));
    kernel.write_user(task, VirtAddr::new(at), &words.0)?;

    let given = frame.action.flags & Action::SA_RESTORER != 0;
    let restorer = if given { frame.action.restorer } else { frame.sigreturn.get() };
    regs.set_gpr(0, u64::from(frame.info.signal.get()));
    regs.set_gpr(1, at);
    regs.set_gpr(2, at.wrapping_add(UC as u64));
    regs.set_gpr(29, record);
    regs.set_gpr(30, restorer);
    regs.set_sp(VirtAddr::new(at));
    regs.set_pc(VirtAddr::new(frame.action.handler));
    Ok(())
}

/// Puts back the registers; the signal mask and alternate stack of the frame.
pub(super) fn restore<P: Platform>(
    kernel: &mut Kernel<P>,
    task: TaskId,
    regs: &mut dyn UserRegs,
) -> Result<(u64, Option<AltStack>), Errno>
where
    P::Sink: CountsByScope,
{
    let at = regs.sp();
    if !at.is_aligned(16) {
        return Err(EFAULT);
    }
    let mut frame = vec![0; SIZE];
    kernel.read_user(task, at, &mut frame)?;
    if word(&frame, RESERVED) != FPSIMD_MAGIC | FPSIMD_SIZE << 32 {
        return Err(EFAULT);
    }
    regs.set_fp_image(frame.get(RESERVED + 8..RESERVED + 528).unwrap_or_default());
    for (n, i) in (0u8..31).zip(0usize..) {
        regs.set_gpr(n, word(&frame, REGS + 8 * i));
    }
    regs.set_sp(VirtAddr::new(word(&frame, REGS + 31 * 8)));
    regs.set_pc(VirtAddr::new(word(&frame, REGS + 32 * 8)));
    regs.set_flags(regs.flags() & !NZCV | word(&frame, REGS + 33 * 8) & NZCV);
    Ok((word(&frame, SIGMASK), altstack_from(&frame, UC + 16)))
}
