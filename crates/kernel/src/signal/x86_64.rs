//! The signal frame of x86-64.
//!
//! Source: Linux arch/x86/include/uapi/asm/sigcontext.h, arch/x86/kernel/signal_64.c
//! `x64_setup_rt_frame()`, arch/x86/kernel/signal.c `get_sigframe()`.

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

/// Registers in the order of `struct sigcontext_64`, by hardware number.
const ORDER: [u8; 16] = [8, 9, 10, 11, 12, 13, 14, 15, 7, 6, 5, 3, 2, 0, 1, 4];
/// Flags that a handler may change in the frame (`FIX_EFLAGS`).
const FIX_EFLAGS: u64 = 0x5_0dd5;
const RED_ZONE: u64 = 128;
/// FXSAVE area.
// FIDELITY: sigframe-avx — the frame holds the FXSAVE part only, not the upper halves of YMM
// registers: a handler that changes them changes them for the interrupted code too.
const FP_BYTES: usize = 512;
const UC: usize = 8;
const MCONTEXT: usize = UC + 40;
const SIGMASK: usize = MCONTEXT + 256;
const INFO: usize = SIGMASK + 8;
const SIZE: usize = INFO + 128;
/// `UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS`.
const UC_FLAGS: u64 = 6;
/// `__USER_CS`, `__USER_DS`: cs, gs, fs, ss as one word.
const SEGMENTS: u64 = 0x33 | 0x2b << 48;

pub(super) fn setup<P: Platform>(
    kernel: &mut Kernel<P>,
    task: TaskId,
    regs: &mut dyn UserRegs,
    frame: &Frame<'_>,
) -> Result<(), Errno>
where
    P::Sink: CountsByScope,
{
    if frame.action.flags & Action::SA_RESTORER == 0 {
        return Err(EFAULT);
    }
    let stack = frame.stack(regs.sp(), RED_ZONE);
    let fp_at = stack.wrapping_sub(FP_BYTES as u64) & !63;
    let at = (fp_at.wrapping_sub(SIZE as u64) & !15).wrapping_sub(8);
    let mut fp = regs.fp_image();
    fp.resize(FP_BYTES, 0);
    kernel.write_user(task, VirtAddr::new(fp_at), &fp)?;

    let mut words = Words::default();
    words.push(frame.action.restorer);
    words.push(UC_FLAGS);
    words.push(0);
    words.bytes(&frame.altstack.to_bytes(regs.sp()));
    for n in ORDER {
        words.push(regs.gpr(n));
    }
    words.push(regs.pc().get());
    words.push(regs.flags());
    words.push(SEGMENTS);
    let trap = frame.info.trap();
    words.push(trap.map_or(0, |t| t.error));
    words.push(trap.map_or(0, |t| t.vector));
    words.push(frame.mask.0);
    words.push(trap.map_or(0, |t| t.addr.get()));
    words.push(fp_at);
    words.pad_to(SIGMASK);
    words.push(frame.mask.0);
    words.bytes(&frame.info.to_bytes());
    kernel.write_user(task, VirtAddr::new(at), &words.0)?;

    regs.set_gpr(7, u64::from(frame.info.signal.get()));
    regs.set_gpr(6, at.wrapping_add(INFO as u64));
    regs.set_gpr(2, at.wrapping_add(UC as u64));
    regs.set_gpr(0, 0);
    regs.set_sp(VirtAddr::new(at));
    regs.set_pc(VirtAddr::new(frame.action.handler));
    // Direction, resume and trap flag are clear in a handler.
    regs.set_flags(regs.flags() & !0x1_0500);
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
    // The handler's `ret` has popped the return address.
    let at = VirtAddr::new(regs.sp().get().wrapping_sub(8));
    let mut frame = vec![0; SIZE];
    kernel.read_user(task, at, &mut frame)?;
    let fp_at = word(&frame, MCONTEXT + 23 * 8);
    if fp_at != 0 {
        let mut fp = vec![0; FP_BYTES];
        kernel.read_user(task, VirtAddr::new(fp_at), &mut fp)?;
        regs.set_fp_image(&fp);
    }
    for (i, n) in ORDER.into_iter().enumerate() {
        regs.set_gpr(n, word(&frame, MCONTEXT + 8 * i));
    }
    regs.set_pc(VirtAddr::new(word(&frame, MCONTEXT + 16 * 8)));
    let flags = word(&frame, MCONTEXT + 17 * 8);
    regs.set_flags(regs.flags() & !FIX_EFLAGS | flags & FIX_EFLAGS);
    Ok((word(&frame, SIGMASK), altstack_from(&frame, UC + 16)))
}
