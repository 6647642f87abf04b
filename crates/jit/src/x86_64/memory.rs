//! Loads and stores: the hit path of [`mmu::hit`] in host code, step by step as it is written there; everything
//! else (a miss, a page boundary, a watched frame, a misaligned operand that must not be) goes to the interpreter.

use super::asm::{Alu, Cc, Gpr, Label, Mem, R13, R14, RAX, RCX, RDX, Shift};
use super::emit::{Cold, Emitter, is_i32, low32};
use super::regs::vector_home;
use cpu::ir::{Code, Op, Width};
use mmu::hit;
use phys::RamWindow;
use std::mem::offset_of;
use units::{PAGE_SHIFT, PAGE_SIZE};

use Width::{W8, W16, W32, W64};

/// The offset in a page, which is also the way in a fast entry.
#[expect(clippy::cast_possible_truncation, reason = "a page is small")]
const PAGE_MASK: i32 = (PAGE_SIZE - 1) as i32;

/// What a memory op does with the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Load,
    /// As the store that follows will be translated.
    LoadForWrite,
    Store,
}

/// How the address is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// a + imm
    Plain,
    /// a + (b << x) + imm
    Indexed,
    /// a; then a += imm
    PostIndexed,
}

/// What is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Datum {
    /// An integer, zero-extended.
    Int(Width),
    /// An integer, sign-extended to 32 or 64 bits.
    Signed(Width, Width),
    /// The low bytes of a vector slot; a load clears the rest.
    Vector(u32),
    /// 16 bytes that must be aligned.
    Aligned,
}

impl Datum {
    fn bytes(self) -> u32 {
        match self {
            Datum::Int(w) | Datum::Signed(w, _) => w.bytes(),
            Datum::Vector(bytes) => bytes,
            Datum::Aligned => 16,
        }
    }
}

fn table(offset: usize) -> Mem {
    Mem::at(R13, i32::try_from(offset).expect("the tables are small"))
}

fn int(offset: usize) -> i32 {
    i32::try_from(offset).expect("the tables are small")
}

/// What a memory op is, if it is one that is emitted.
fn describe(code: Code) -> Option<(Kind, Form, Datum)> {
    use Datum::{Aligned, Int, Signed, Vector};
    use Form::{Indexed, Plain, PostIndexed};
    use Kind::{Load, LoadForWrite, Store};
    Some(match code {
        Code::LdU8 => (Load, Plain, Int(W8)),
        Code::LdU16 => (Load, Plain, Int(W16)),
        Code::LdU32 => (Load, Plain, Int(W32)),
        Code::Ld64 => (Load, Plain, Int(W64)),
        Code::LdS8to32 => (Load, Plain, Signed(W8, W32)),
        Code::LdS8to64 => (Load, Plain, Signed(W8, W64)),
        Code::LdS16to32 => (Load, Plain, Signed(W16, W32)),
        Code::LdS16to64 => (Load, Plain, Signed(W16, W64)),
        Code::LdS32to64 => (Load, Plain, Signed(W32, W64)),
        Code::LdU8X => (Load, Indexed, Int(W8)),
        Code::LdU16X => (Load, Indexed, Int(W16)),
        Code::LdU32X => (Load, Indexed, Int(W32)),
        Code::Ld64X => (Load, Indexed, Int(W64)),
        Code::LdS8to32X => (Load, Indexed, Signed(W8, W32)),
        Code::LdS8to64X => (Load, Indexed, Signed(W8, W64)),
        Code::LdS16to32X => (Load, Indexed, Signed(W16, W32)),
        Code::LdS16to64X => (Load, Indexed, Signed(W16, W64)),
        Code::LdS32to64X => (Load, Indexed, Signed(W32, W64)),
        Code::LdU8P => (Load, PostIndexed, Int(W8)),
        Code::LdU32P => (Load, PostIndexed, Int(W32)),
        Code::Ld64P => (Load, PostIndexed, Int(W64)),
        Code::LdW8 => (LoadForWrite, Plain, Int(W8)),
        Code::LdW16 => (LoadForWrite, Plain, Int(W16)),
        Code::LdW32 => (LoadForWrite, Plain, Int(W32)),
        Code::LdW64 => (LoadForWrite, Plain, Int(W64)),
        Code::St8 => (Store, Plain, Int(W8)),
        Code::St16 => (Store, Plain, Int(W16)),
        Code::St32 => (Store, Plain, Int(W32)),
        Code::St64 => (Store, Plain, Int(W64)),
        Code::St8X => (Store, Indexed, Int(W8)),
        Code::St16X => (Store, Indexed, Int(W16)),
        Code::St32X => (Store, Indexed, Int(W32)),
        Code::St64X => (Store, Indexed, Int(W64)),
        Code::St8P => (Store, PostIndexed, Int(W8)),
        Code::St32P => (Store, PostIndexed, Int(W32)),
        Code::St64P => (Store, PostIndexed, Int(W64)),
        Code::VLd128 => (Load, Plain, Vector(16)),
        Code::VLd64 => (Load, Plain, Vector(8)),
        Code::VLd32 => (Load, Plain, Vector(4)),
        Code::VLd16 => (Load, Plain, Vector(2)),
        Code::VLd8 => (Load, Plain, Vector(1)),
        Code::VLd128X => (Load, Indexed, Vector(16)),
        Code::VLd64X => (Load, Indexed, Vector(8)),
        Code::VLd32X => (Load, Indexed, Vector(4)),
        Code::VLd128P => (Load, PostIndexed, Vector(16)),
        Code::VLd128A => (Load, Plain, Aligned),
        Code::VLd128AX => (Load, Indexed, Aligned),
        Code::VSt128 => (Store, Plain, Vector(16)),
        Code::VSt64 => (Store, Plain, Vector(8)),
        Code::VSt32 => (Store, Plain, Vector(4)),
        Code::VSt16 => (Store, Plain, Vector(2)),
        Code::VSt8 => (Store, Plain, Vector(1)),
        Code::VSt128X => (Store, Indexed, Vector(16)),
        Code::VSt64X => (Store, Indexed, Vector(8)),
        Code::VSt32X => (Store, Indexed, Vector(4)),
        Code::VSt128P => (Store, PostIndexed, Vector(16)),
        Code::VSt128A => (Store, Plain, Aligned),
        Code::VSt128AX => (Store, Indexed, Aligned),
        _ => return None,
    })
}

impl Emitter<'_> {
    pub(super) fn memory_op(&mut self, op: &Op) -> bool {
        let Some((kind, form, datum)) = describe(op.code) else { return false };
        let a = self.source(op.a);
        let b = (form == Form::Indexed).then(|| self.source(op.b));
        // The register that is loaded or stored, if it is an integer's.
        let reg = match (kind, datum) {
            (_, Datum::Vector(_) | Datum::Aligned) => None,
            (Kind::Store, _) => Some(self.source(op.c)),
            _ => Some(self.target(op.d)),
        };
        let before = self.cache;
        self.or_interpret(before, |e, slow| {
            e.address(op, form, a, b);
            e.probe(kind, datum, slow);
            let at = Mem::indexed(RCX, RAX, 0, 0);
            match kind {
                Kind::Store => e.store_datum(op, datum, reg, at),
                _ => e.load_datum(op, datum, reg, at),
            }
            if form == Form::PostIndexed {
                e.advance(op, a);
            }
        });
        true
    }

    /// RAX = the address
    fn address(&mut self, op: &Op, form: Form, a: Gpr, b: Option<Gpr>) {
        let imm = if form == Form::PostIndexed { 0 } else { op.imm };
        let shift = op.x.to_le_bytes()[0] & 63;
        match b {
            None if imm == 0 => self.asm.mov(W64, RAX, a),
            None if is_i32(imm) => self.asm.lea(W64, RAX, Mem::at(a, low32(imm))),
            None => {
                self.asm.movi(RAX, imm.cast_unsigned());
                self.asm.alu(Alu::Add, W64, RAX, a);
            }
            Some(b) if shift <= 3 && is_i32(imm) => {
                self.asm.lea(W64, RAX, Mem::indexed(a, b, shift, low32(imm)));
            }
            Some(b) => {
                self.asm.movi(RAX, imm.cast_unsigned());
                self.asm.alu(Alu::Add, W64, RAX, a);
                self.asm.mov(W64, RCX, b);
                self.asm.shifti(Shift::Shl, W64, RCX, shift);
                self.asm.alu(Alu::Add, W64, RAX, RCX);
            }
        }
    }

    /// The hit path for the address in RAX: RCX + RAX becomes the host address. Clobbers RDX. On the way to `slow`
    /// nothing has happened.
    fn probe(&mut self, kind: Kind, datum: Datum, slow: Label) {
        let around = self.around;
        if datum == Datum::Aligned {
            self.asm.mov(W32, RDX, RAX);
            self.asm.alui(Alu::And, W32, RDX, 15);
            self.asm.jcc(Cc::Ne, slow);
        }
        // 1: page, and the place of its entry
        self.asm.mov(W64, RDX, RAX);
        let ignored =
            u8::try_from(64 - around.shape.va_bits).expect("addresses have 64 bits at most");
        if ignored != 0 {
            self.asm.shifti(Shift::Shl, W64, RDX, ignored);
        }
        let shift = u8::try_from(PAGE_SHIFT).expect("small") + ignored;
        self.asm.shifti(Shift::Shr, W64, RDX, shift);
        self.asm.alui(Alu::And, W32, RAX, PAGE_MASK);
        if datum.bytes() > 1 && datum != Datum::Aligned {
            let last = PAGE_MASK + 1 - int(datum.bytes() as usize);
            self.asm.alui(Alu::Cmp, W32, RAX, last);
            self.asm.jcc(Cc::A, slow);
        }
        self.asm.imuli(W32, RCX, RDX, hit::INDEX_FACTOR.cast_signed());
        // Index times 16 is the entry's offset.
        let scale = hit::ENTRY_BYTES.trailing_zeros();
        self.asm.shifti(
            Shift::Shr,
            W32,
            RCX,
            u8::try_from(hit::INDEX_SHIFT - scale).expect("small"),
        );
        self.asm.alui(Alu::And, W32, RCX, int((hit::FAST_ENTRIES - 1) * hit::ENTRY_BYTES));
        // 2: the tag
        let entries = if kind == Kind::Load { hit::READ_AT } else { hit::WRITE_AT };
        self.asm.alu(Alu::Or, W64, RDX, table(hit::GENERATION_AT));
        self.asm.alu(Alu::Cmp, W64, RDX, Mem::indexed(R13, RCX, 0, int(entries)));
        self.asm.jcc(Cc::Ne, slow);
        self.asm.load(W64, RCX, Mem::indexed(R13, RCX, 0, int(entries + 8)));
        if kind == Kind::Store {
            self.watch(slow);
        }
        // 3: clock and stamp
        self.asm.mov(W32, RDX, RCX);
        self.asm.alui(Alu::And, W32, RDX, PAGE_MASK);
        self.asm.inc(R14);
        if around.shape.stamps == hit::Stamps::Kept {
            self.asm.store(W64, Mem::indexed(R13, RDX, 3, int(hit::STAMPS_AT)), R14);
        }
        // 4 and 5: page and host address
        self.asm.alu(Alu::Xor, W64, RCX, RDX);
        self.asm.alu(Alu::Add, W64, RCX, table(hit::RAM_AT + offset_of!(RamWindow, base)));
    }

    /// To `slow` if the frame in RCX is watched. RCX has the way in its low bits, which changes nothing: all are multiples of a
    /// page.
    fn watch(&mut self, slow: Label) {
        let (from, back) = (self.asm.label(), self.asm.label());
        self.asm.mov(W64, RDX, RCX);
        self.asm.alu(Alu::Sub, W64, RDX, table(hit::RAM_AT + offset_of!(RamWindow, watch_low)));
        self.asm.alu(Alu::Cmp, W64, RDX, table(hit::RAM_AT + offset_of!(RamWindow, watch_span)));
        self.asm.jcc(Cc::B, from);
        self.asm.bind(back);
        self.cold.push(Cold::Watched { from, back, slow });
    }

    pub(super) fn watched(&mut self, from: Label, back: Label, slow: Label) {
        self.asm.bind(from);
        self.asm.mov(W64, RDX, RCX);
        self.asm.shifti(Shift::Shr, W64, RDX, u8::try_from(PAGE_SHIFT).expect("small"));
        self.asm.push(RAX);
        self.asm.load(W64, RAX, table(hit::RAM_AT + offset_of!(RamWindow, watch_bits)));
        self.asm.bt_memory(Mem::at(RAX, 0), RDX);
        self.asm.pop(RAX);
        self.asm.jcc(Cc::B, slow);
        self.asm.jmp(back);
    }

    fn load_datum(&mut self, op: &Op, datum: Datum, reg: Option<Gpr>, at: Mem) {
        match (datum, reg) {
            (Datum::Int(w), Some(d)) => {
                self.asm.load(w, d, at);
                self.cache.wrote(op.d);
            }
            (Datum::Signed(from, to), Some(d)) => {
                self.asm.load_signed(from, to, d, at);
                self.cache.wrote(op.d);
            }
            (Datum::Vector(16) | Datum::Aligned, _) => {
                // movdqu; movdqa
                self.asm.sse(0xf3, 0x6f, 0, at);
                self.asm.sse(0x66, 0x7f, 0, vector_home(op.d));
            }
            _ => {
                let w = Width::of_bytes(datum.bytes() as usize);
                self.asm.load(w, RAX, at);
                self.asm.store(W64, vector_home(op.d), RAX);
                let mut high = vector_home(op.d);
                high.disp += 8;
                self.asm.store_imm64(high, 0);
            }
        }
    }

    fn store_datum(&mut self, op: &Op, datum: Datum, reg: Option<Gpr>, at: Mem) {
        match (datum, reg) {
            (Datum::Int(w), Some(c)) => self.asm.store(w, at, c),
            (Datum::Vector(16) | Datum::Aligned, _) => {
                self.asm.sse(0x66, 0x6f, 0, vector_home(op.c));
                self.asm.sse(0xf3, 0x7f, 0, at);
            }
            _ => {
                let w = Width::of_bytes(datum.bytes() as usize);
                self.asm.load(W64, RDX, vector_home(op.c));
                self.asm.store(w, at, RDX);
            }
        }
    }

    /// a += imm, after the access
    fn advance(&mut self, op: &Op, a: Gpr) {
        self.uses.write(op.a);
        super::emit::alu_imm(&mut self.asm, Alu::Add, W64, a, op.imm, RAX);
        self.cache.wrote(op.a);
    }
}
