//! No system call with any arguments may panic or run away.

use super::*;
use crate::rng::Rng;

on_both! { random_calls_return_or_end_the_program }

mod check {
    use super::*;

    fn argument(rng: &mut Rng) -> u64 {
        let edges = [
            0,
            1,
            2,
            3,
            4096,
            DATA,
            DATA + 1,
            CODE,
            0x40_2fff,
            0x40_5ff8,
            0x7fff_ffff_f000,
            0x7fff_ffff_ffff,
            1 << 48,
            u64::MAX,
            u64::MAX - 99,
            i64::MAX.cast_unsigned(),
            u64::from(u32::MAX),
            1 << 31,
        ];
        let pick = rng.next_u64();
        match pick % 4 {
            0 => pick >> 8 & 0xff,
            1 => pick >> 8,
            _ => edges[usize::try_from(pick >> 8).unwrap_or_default() % edges.len()],
        }
    }

    pub(super) fn random_calls_return_or_end_the_program<A: Arch>() {
        let mut rng = Rng::new(7);
        let names: Vec<u32> = SYSCALLS.iter().filter_map(|s| s.nr(A::ID)).collect();
        for _ in 0..40 {
            let mut g = Guest::<A>::with_cpus(2);
            g.poke(DATA, b"/sys/kernel/mm/transparent_hugepage/enabled\0");
            for _ in 0..200 {
                let pick = usize::try_from(rng.next_u64() >> 8).unwrap_or_default();
                let args = std::array::from_fn(|_| argument(&mut rng));
                g.call_nr(names[pick % names.len()], args);
                if g.kernel.exit_status().is_some() {
                    break;
                }
                if g.last != Outcome::Resume {
                    let Some(outcome) = g.turn(CPU0).or_else(|| g.turn(CPU1)) else { break };
                    if outcome == Outcome::Exited {
                        break;
                    }
                }
            }
        }
    }

    const CPU0: CpuId = CpuId::new(0);
    const CPU1: CpuId = CpuId::new(1);
}
