//! An assembler: the encodings that the emitter uses, no more. Source: Intel SDM 2, "Instruction Format".
//!
//! Code is position-independent: jumps inside a buffer are relative, everything else goes through registers.

use cpu::ir::Width;

/// A general register, by its number in encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gpr(pub(super) u8);

pub(super) const RAX: Gpr = Gpr(0);
pub(super) const RCX: Gpr = Gpr(1);
pub(super) const RDX: Gpr = Gpr(2);
pub(super) const RBX: Gpr = Gpr(3);
pub(super) const RSP: Gpr = Gpr(4);
pub(super) const RBP: Gpr = Gpr(5);
pub(super) const RSI: Gpr = Gpr(6);
pub(super) const RDI: Gpr = Gpr(7);
pub(super) const R8: Gpr = Gpr(8);
pub(super) const R9: Gpr = Gpr(9);
pub(super) const R10: Gpr = Gpr(10);
pub(super) const R11: Gpr = Gpr(11);
pub(super) const R12: Gpr = Gpr(12);
pub(super) const R13: Gpr = Gpr(13);
pub(super) const R14: Gpr = Gpr(14);
pub(super) const R15: Gpr = Gpr(15);

/// A memory operand: base + (index << scale) + disp. RSP is no index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mem {
    pub(super) base: Gpr,
    pub(super) index: Option<(Gpr, u8)>,
    pub(super) disp: i32,
}

impl Mem {
    pub(super) const fn at(base: Gpr, disp: i32) -> Mem {
        Mem { base, index: None, disp }
    }
    pub(super) const fn indexed(base: Gpr, index: Gpr, scale: u8, disp: i32) -> Mem {
        Mem { base, index: Some((index, scale)), disp }
    }
}

/// Register or memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rm {
    Reg(Gpr),
    Mem(Mem),
}
impl From<Gpr> for Rm {
    fn from(r: Gpr) -> Rm {
        Rm::Reg(r)
    }
}
impl From<Mem> for Rm {
    fn from(m: Mem) -> Rm {
        Rm::Mem(m)
    }
}

/// Two-operand arithmetic, by its number in encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Alu {
    Add = 0,
    Or = 1,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

/// Shifts and rotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Shift {
    Ror = 1,
    Shl = 4,
    Shr = 5,
    Sar = 7,
}

/// One-operand arithmetic of group 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Unary {
    Not = 2,
    Neg = 3,
    Mul = 4,
    Imul = 5,
    Div = 6,
    Idiv = 7,
}

/// A condition, by its number in encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Cc {
    B = 2,
    Ae = 3,
    E = 4,
    Ne = 5,
    Be = 6,
    A = 7,
    S = 8,
    Ns = 9,
    P = 10,
    Np = 11,
    L = 12,
    Ge = 13,
    Le = 14,
    G = 15,
}

impl Cc {
    /// The opposite.
    pub(super) const fn not(self) -> Cc {
        match self {
            Cc::B => Cc::Ae,
            Cc::Ae => Cc::B,
            Cc::E => Cc::Ne,
            Cc::Ne => Cc::E,
            Cc::Be => Cc::A,
            Cc::A => Cc::Be,
            Cc::S => Cc::Ns,
            Cc::Ns => Cc::S,
            Cc::P => Cc::Np,
            Cc::Np => Cc::P,
            Cc::L => Cc::Ge,
            Cc::Ge => Cc::L,
            Cc::Le => Cc::G,
            Cc::G => Cc::Le,
        }
    }
}

/// A place in the buffer that jumps lead to, perhaps not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// A growing piece of code.
#[derive(Debug, Default)]
pub(super) struct Asm {
    code: Vec<u8>,
    labels: Vec<Option<usize>>,
    /// Ends of 32-bit displacements, and where they lead.
    jumps: Vec<(usize, Label)>,
}

const fn rex_bit(reg: u8, shift: u8) -> u8 {
    ((reg >> 3) & 1) << shift
}

impl Asm {
    /// A label to be placed later.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }
    /// Places a label here.
    pub(super) fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }
    /// Where a label was placed.
    pub(super) fn place(&self, label: Label) -> usize {
        self.labels[label.0].expect("every label is bound before the end")
    }

    /// Resolves the jumps and yields the bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        for (end, label) in std::mem::take(&mut self.jumps) {
            let distance = self.place(label).cast_signed() - end.cast_signed();
            let rel = i32::try_from(distance).expect("blocks are small");
            self.code[end - 4..end].copy_from_slice(&rel.to_le_bytes());
        }
        self.code
    }

    fn byte(&mut self, b: u8) {
        self.code.push(b);
    }
    fn imm32(&mut self, v: i32) {
        self.code.extend(v.to_le_bytes());
    }

    /// Prefix, REX, opcode, ModRM and SIB. `bytes`: an operand is an 8-bit register.
    fn op(&mut self, prefix: &[u8], opcode: &[u8], (w, bytes): (bool, bool), reg: u8, rm: Rm) {
        self.code.extend_from_slice(prefix);
        let (mut rex, mut force) = (rex_bit(reg, 2) | u8::from(w) << 3, bytes && reg >= 4);
        match rm {
            Rm::Reg(r) => {
                rex |= rex_bit(r.0, 0);
                force |= bytes && r.0 >= 4;
            }
            Rm::Mem(m) => {
                rex |= rex_bit(m.base.0, 0) | m.index.map_or(0, |(i, _)| rex_bit(i.0, 1));
            }
        }
        if rex != 0 || force {
            self.byte(0x40 | rex);
        }
        self.code.extend_from_slice(opcode);
        let reg = (reg & 7) << 3;
        match rm {
            Rm::Reg(r) => self.byte(0xc0 | reg | r.0 & 7),
            Rm::Mem(m) => self.memory(reg, m),
        }
    }

    fn memory(&mut self, reg: u8, m: Mem) {
        let base = m.base.0 & 7;
        let disp8 = i8::try_from(m.disp);
        let mode = match (m.disp, disp8) {
            (0, _) if base != RBP.0 => 0,
            (_, Ok(_)) => 0x40,
            _ => 0x80,
        };
        match m.index {
            Some((index, scale)) => {
                debug_assert!(index != RSP, "RSP is no index");
                self.byte(mode | reg | 4);
                self.byte(scale << 6 | (index.0 & 7) << 3 | base);
            }
            None if base == RSP.0 => {
                self.byte(mode | reg | 4);
                self.byte(0x24);
            }
            None => self.byte(mode | reg | base),
        }
        match (mode, disp8) {
            (0, _) => {}
            (0x40, Ok(d)) => self.byte(d.cast_unsigned()),
            _ => self.imm32(m.disp),
        }
    }

    /// mov register, register
    pub(super) fn mov(&mut self, w: Width, to: Gpr, from: Gpr) {
        self.op(&[], &[0x89], (w == Width::W64, false), from.0, to.into());
    }
    /// mov register, immediate, by the shortest encoding
    pub(super) fn movi(&mut self, to: Gpr, value: u64) {
        if value == 0 {
            self.alu(Alu::Xor, Width::W32, to, to);
        } else if let Ok(v) = u32::try_from(value) {
            self.movi_keep(to, v);
        } else if let Ok(v) = i32::try_from(value.cast_signed()) {
            self.op(&[], &[0xc7], (true, false), 0, to.into());
            self.imm32(v);
        } else {
            self.byte(0x48 | rex_bit(to.0, 0));
            self.byte(0xb8 | to.0 & 7);
            self.code.extend(value.to_le_bytes());
        }
    }
    /// mov register, 32-bit immediate, without touching flags
    pub(super) fn movi_keep(&mut self, to: Gpr, value: u32) {
        if to.0 >= 8 {
            self.byte(0x41);
        }
        self.byte(0xb8 | to.0 & 7);
        self.code.extend(value.to_le_bytes());
    }
    /// mov register, memory; 8 and 16 bits are zero-extended
    pub(super) fn load(&mut self, w: Width, to: Gpr, from: impl Into<Rm>) {
        match w {
            Width::W8 => self.op(&[], &[0x0f, 0xb6], (false, true), to.0, from.into()),
            Width::W16 => self.op(&[], &[0x0f, 0xb7], (false, false), to.0, from.into()),
            _ => self.op(&[], &[0x8b], (w == Width::W64, false), to.0, from.into()),
        }
    }
    /// movsx register, register or memory of `from_w` bits, to 32 or 64 bits
    pub(super) fn load_signed(&mut self, from_w: Width, w: Width, to: Gpr, from: impl Into<Rm>) {
        let wide = w == Width::W64;
        match from_w {
            Width::W8 => self.op(&[], &[0x0f, 0xbe], (wide, true), to.0, from.into()),
            Width::W16 => self.op(&[], &[0x0f, 0xbf], (wide, false), to.0, from.into()),
            _ => self.op(&[], &[0x63], (wide, false), to.0, from.into()),
        }
    }
    /// mov memory, register
    pub(super) fn store(&mut self, w: Width, to: Mem, from: Gpr) {
        match w {
            Width::W8 => self.op(&[], &[0x88], (false, true), from.0, to.into()),
            Width::W16 => self.op(&[0x66], &[0x89], (false, false), from.0, to.into()),
            _ => self.op(&[], &[0x89], (w == Width::W64, false), from.0, to.into()),
        }
    }
    /// mov qword memory, sign-extended immediate
    pub(super) fn store_imm64(&mut self, to: Mem, value: i32) {
        self.op(&[], &[0xc7], (true, false), 0, to.into());
        self.imm32(value);
    }
    /// mov word memory, immediate
    pub(super) fn store_imm16(&mut self, to: Mem, value: u16) {
        self.op(&[0x66], &[0xc7], (false, false), 0, to.into());
        self.code.extend(value.to_le_bytes());
    }
    /// lea register, memory
    pub(super) fn lea(&mut self, w: Width, to: Gpr, m: Mem) {
        self.op(&[], &[0x8d], (w == Width::W64, false), to.0, m.into());
    }

    /// alu register, register or memory
    pub(super) fn alu(&mut self, alu: Alu, w: Width, to: Gpr, from: impl Into<Rm>) {
        self.op(&[], &[(alu as u8) << 3 | 3], (w == Width::W64, false), to.0, from.into());
    }
    /// alu register, immediate
    pub(super) fn alui(&mut self, alu: Alu, w: Width, to: Gpr, value: i32) {
        let wide = w == Width::W64;
        if let Ok(v) = i8::try_from(value) {
            self.op(&[], &[0x83], (wide, false), alu as u8, to.into());
            self.byte(v.cast_unsigned());
        } else {
            self.op(&[], &[0x81], (wide, false), alu as u8, to.into());
            self.imm32(value);
        }
    }
    /// test register, register
    pub(super) fn test(&mut self, w: Width, a: Gpr, b: Gpr) {
        self.op(&[], &[0x85], (w == Width::W64, false), b.0, a.into());
    }
    /// bt register, immediate
    pub(super) fn bt_imm(&mut self, w: Width, a: Gpr, bit: u8) {
        self.op(&[], &[0x0f, 0xba], (w == Width::W64, false), 4, a.into());
        self.byte(bit);
    }
    /// bt bit string in memory, 64-bit register
    pub(super) fn bt_memory(&mut self, bits: Mem, index: Gpr) {
        self.op(&[], &[0x0f, 0xa3], (true, false), index.0, bits.into());
    }
    /// shift register, immediate
    pub(super) fn shifti(&mut self, shift: Shift, w: Width, r: Gpr, count: u8) {
        self.op(&[], &[0xc1], (w == Width::W64, false), shift as u8, r.into());
        self.byte(count);
    }
    /// shift register, CL
    pub(super) fn shift_cl(&mut self, shift: Shift, w: Width, r: Gpr) {
        self.op(&[], &[0xd3], (w == Width::W64, false), shift as u8, r.into());
    }
    /// shrd low, high, immediate: low takes bits of high from above
    pub(super) fn shrd(&mut self, w: Width, low: Gpr, high: Gpr, count: u8) {
        self.op(&[], &[0x0f, 0xac], (w == Width::W64, false), high.0, low.into());
        self.byte(count);
    }
    /// imul register, register
    pub(super) fn imul(&mut self, w: Width, to: Gpr, from: Gpr) {
        self.op(&[], &[0x0f, 0xaf], (w == Width::W64, false), to.0, from.into());
    }
    /// imul register, register, immediate
    pub(super) fn imuli(&mut self, w: Width, to: Gpr, from: Gpr, value: i32) {
        self.op(&[], &[0x69], (w == Width::W64, false), to.0, from.into());
        self.imm32(value);
    }
    /// not, neg; mul, imul, div, idiv on RDX:RAX
    pub(super) fn unary(&mut self, unary: Unary, w: Width, r: Gpr) {
        self.op(&[], &[0xf7], (w == Width::W64, false), unary as u8, r.into());
    }
    /// Sign of RAX in all of RDX (cdq, cqo).
    pub(super) fn sign_to_rdx(&mut self, w: Width) {
        if w == Width::W64 {
            self.byte(0x48);
        }
        self.byte(0x99);
    }
    /// inc register
    pub(super) fn inc(&mut self, r: Gpr) {
        self.op(&[], &[0xff], (true, false), 0, r.into());
    }
    /// bswap register
    pub(super) fn bswap(&mut self, w: Width, r: Gpr) {
        let rex = u8::from(w == Width::W64) << 3 | rex_bit(r.0, 0);
        if rex != 0 {
            self.byte(0x40 | rex);
        }
        self.byte(0x0f);
        self.byte(0xc8 | r.0 & 7);
    }
    /// setcc low byte of register
    pub(super) fn setcc(&mut self, cc: Cc, r: Gpr) {
        self.op(&[], &[0x0f, 0x90 | cc as u8], (false, true), 0, r.into());
    }
    /// cmovcc register, register
    pub(super) fn cmov(&mut self, cc: Cc, w: Width, to: Gpr, from: Gpr) {
        self.op(&[], &[0x0f, 0x40 | cc as u8], (w == Width::W64, false), to.0, from.into());
    }
    /// lzcnt, tzcnt or popcnt by opcode: register, register
    pub(super) fn count(&mut self, opcode: u8, w: Width, to: Gpr, from: Gpr) {
        self.op(&[0xf3], &[0x0f, opcode], (w == Width::W64, false), to.0, from.into());
    }

    /// jmp label
    pub(super) fn jmp(&mut self, to: Label) {
        self.byte(0xe9);
        self.displacement(to);
    }
    /// jcc label
    pub(super) fn jcc(&mut self, cc: Cc, to: Label) {
        self.byte(0x0f);
        self.byte(0x80 | cc as u8);
        self.displacement(to);
    }
    fn displacement(&mut self, to: Label) {
        self.imm32(0);
        self.jumps.push((self.code.len(), to));
    }
    /// jmp register or memory
    pub(super) fn jmp_to(&mut self, to: impl Into<Rm>) {
        self.op(&[], &[0xff], (false, false), 4, to.into());
    }
    /// call register or memory
    pub(super) fn call(&mut self, to: impl Into<Rm>) {
        self.op(&[], &[0xff], (false, false), 2, to.into());
    }
    /// push register
    pub(super) fn push(&mut self, r: Gpr) {
        if r.0 >= 8 {
            self.byte(0x41);
        }
        self.byte(0x50 | r.0 & 7);
    }
    /// pop register
    pub(super) fn pop(&mut self, r: Gpr) {
        if r.0 >= 8 {
            self.byte(0x41);
        }
        self.byte(0x58 | r.0 & 7);
    }
    /// ret
    pub(super) fn ret(&mut self) {
        self.byte(0xc3);
    }

    /// ucomiss
    pub(super) fn ucomiss(&mut self, a: u8, b: u8) {
        self.op(&[], &[0x0f, 0x2e], (false, false), a, Gpr(b).into());
    }
    /// An SSE instruction `66/F3/F2 0F opcode`: register, register or memory.
    pub(super) fn sse(&mut self, prefix: u8, opcode: u8, xmm: u8, rm: impl Into<Rm>) {
        self.op(&[prefix], &[0x0f, opcode], (false, false), xmm, rm.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Width::{W8, W16, W32, W64};
    use iced_x86::{Decoder, DecoderOptions, FastFormatter, Instruction};

    const REGS: [Gpr; 16] =
        [RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15];

    fn decode(code: &[u8]) -> Instruction {
        let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
        let instruction = decoder.decode();
        assert!(!instruction.is_invalid(), "{code:02x?}");
        assert_eq!(instruction.len(), code.len(), "{code:02x?}");
        instruction
    }

    fn text(instruction: &Instruction) -> String {
        let mut text = String::new();
        FastFormatter::new().format(instruction, &mut text);
        text
    }

    fn check(emit: impl FnOnce(&mut Asm), expected: &str) {
        let mut asm = Asm::default();
        emit(&mut asm);
        assert_eq!(text(&decode(&asm.finish())), expected);
    }

    #[test]
    fn encodings_decode_as_meant() {
        let m = Mem::indexed(R13, RCX, 3, 0x1234);
        check(|a| a.mov(W64, R8, RBX), "mov r8,rbx");
        check(|a| a.mov(W32, RSI, R12), "mov esi,r12d");
        check(|a| a.movi(R9, 0), "xor r9d,r9d");
        check(|a| a.movi(R9, 5), "mov r9d,5h");
        check(|a| a.movi(RDI, (-7i64).cast_unsigned()), "mov rdi,0FFFFFFFFFFFFFFF9h");
        check(|a| a.movi(R10, 0x1234_5678_9abc), "mov r10,123456789ABCh");
        check(|a| a.movi_keep(RAX, 0), "mov eax,0h");
        check(|a| a.load(W8, RBX, RSI), "movzx ebx,sil");
        check(|a| a.load(W16, R9, R10), "movzx r9d,r10w");
        check(|a| a.load(W64, R9, m), "mov r9,[r13+rcx*8+1234h]");
        check(|a| a.load(W32, RAX, m), "mov eax,[r13+rcx*8+1234h]");
        check(|a| a.load_signed(W8, W64, RAX, RDI), "movsx rax,dil");
        check(|a| a.load_signed(W16, W32, R8, RDI), "movsx r8d,di");
        check(|a| a.load_signed(W32, W64, R8, RDI), "movsxd r8,edi");
        check(|a| a.store(W8, Mem::at(RSP, 0), RSI), "mov [rsp],sil");
        check(|a| a.store(W16, Mem::at(R12, 4), R9), "mov [r12+4h],r9w");
        check(|a| a.store(W32, Mem::at(RBP, 0), R9), "mov [rbp],r9d");
        check(|a| a.store(W64, Mem::at(R13, 0), RDX), "mov [r13],rdx");
        check(
            |a| a.store_imm64(Mem::at(R15, -128), -2),
            "mov qword ptr [r15-80h],0FFFFFFFFFFFFFFFEh",
        );
        check(|a| a.store_imm16(Mem::at(R15, 128), 0x402), "mov word ptr [r15+80h],402h");
        check(|a| a.lea(W64, RAX, Mem::indexed(RAX, R12, 0, -1)), "lea rax,[rax+r12-1h]");
        check(|a| a.alu(Alu::Xor, W32, RBX, R11), "xor ebx,r11d");
        check(|a| a.alu(Alu::Sub, W64, RDX, Mem::at(R13, 24)), "sub rdx,[r13+18h]");
        check(|a| a.alui(Alu::Cmp, W64, R8, 127), "cmp r8,7Fh");
        check(|a| a.alui(Alu::And, W32, RAX, 0xfff), "and eax,0FFFh");
        check(|a| a.alui(Alu::Or, W64, RAX, -300), "or rax,0FFFFFFFFFFFFFED4h");
        check(|a| a.test(W64, RSI, R9), "test rsi,r9");
        check(|a| a.bt_imm(W64, R10, 63), "bt r10,3Fh");
        check(|a| a.bt_memory(Mem::at(RAX, 0), RDX), "bt [rax],rdx");
        check(|a| a.shifti(Shift::Ror, W32, R8, 7), "ror r8d,7h");
        check(|a| a.shift_cl(Shift::Sar, W64, RAX), "sar rax,cl");
        check(|a| a.shrd(W64, RAX, R9, 13), "shrd rax,r9,0Dh");
        check(|a| a.imul(W64, R8, RAX), "imul r8,rax");
        check(|a| a.imuli(W32, RCX, RDX, 0x0101_0100), "imul ecx,edx,1010100h");
        check(|a| a.unary(Unary::Idiv, W32, R11), "idiv r11d");
        check(|a| a.unary(Unary::Not, W64, RAX), "not rax");
        check(|a| a.sign_to_rdx(W32), "cdq");
        check(|a| a.sign_to_rdx(W64), "cqo");
        check(|a| a.inc(R14), "inc r14");
        check(|a| a.bswap(W32, R12), "bswap r12d");
        check(|a| a.bswap(W64, RBX), "bswap rbx");
        check(|a| a.setcc(Cc::A, RDI), "seta dil");
        check(|a| a.cmov(Cc::E, W64, RAX, R12), "cmove rax,r12");
        check(|a| a.count(0xbd, W64, R8, RBX), "lzcnt r8,rbx");
        check(|a| a.count(0xbc, W32, RBX, R8), "tzcnt ebx,r8d");
        check(|a| a.count(0xb8, W64, RBX, RSI), "popcnt rbx,rsi");
        check(|a| a.jmp_to(Mem::at(RAX, 0)), "jmp qword ptr [rax]");
        check(|a| a.jmp_to(RCX), "jmp rcx");
        check(|a| a.call(Mem::at(RDI, 24)), "call qword ptr [rdi+18h]");
        check(|a| a.call(R9), "call r9");
        check(|a| a.push(R15), "push r15");
        check(|a| a.pop(RBX), "pop rbx");
        check(Asm::ret, "ret");
        check(|a| a.sse(0x66, 0x6f, 0, Mem::at(R15, 256)), "movdqa xmm0,[r15+100h]");
        check(|a| a.sse(0xf3, 0x7f, 0, Mem::indexed(RCX, RAX, 0, 0)), "movdqu [rcx+rax],xmm0");
        check(|a| a.sse(0xf3, 0x7e, 0, Gpr(0)), "movq xmm0,xmm0");
        check(|a| a.sse(0x66, 0x2e, 0, Gpr(0)), "ucomisd xmm0,xmm0");
        check(|a| a.ucomiss(0, 0), "ucomiss xmm0,xmm0");
        check(|a| a.sse(0x66, 0x7e, 0, RAX), "movd eax,xmm0");
        check(|a| a.sse(0x66, 0x6e, 0, RAX), "movd xmm0,eax");
        check(|a| a.sse(0xf2, 0x58, 0, Mem::at(R15, 256)), "addsd xmm0,[r15+100h]");
    }

    #[test]
    fn jumps_lead_to_their_labels() {
        let mut asm = Asm::default();
        let (back, on) = (asm.label(), asm.label());
        asm.bind(back);
        asm.jcc(Cc::Ne, on);
        asm.jmp(back);
        asm.bind(on);
        asm.ret();
        let code = asm.finish();
        let targets: Vec<u64> = Decoder::with_ip(64, &code, 0x1000, DecoderOptions::NONE)
            .iter()
            .map(|i| i.near_branch_target())
            .collect();
        assert_eq!(targets, [0x100b, 0x1000, 0]);
    }

    /// Every operand of every register, and memory in every form.
    #[test]
    fn operands_are_encoded_for_all_registers() {
        for base in REGS {
            for index in REGS.map(Some).into_iter().filter(|i| *i != Some(RSP)).chain([None]) {
                for disp in [0, 1, -128, 127, 128, -129, i32::MAX] {
                    for reg in REGS {
                        let m = Mem { base, index: index.map(|i| (i, 2)), disp };
                        for w in [W8, W16, W32, W64] {
                            let mut asm = Asm::default();
                            asm.store(w, m, reg);
                            check_memory(&decode(&asm.finish()), m, reg, w);
                        }
                    }
                }
            }
        }
    }

    fn check_memory(instruction: &Instruction, m: Mem, reg: Gpr, w: Width) {
        assert_eq!(instruction.memory_base().number(), usize::from(m.base.0));
        match m.index {
            Some((index, scale)) => {
                assert_eq!(instruction.memory_index().number(), usize::from(index.0));
                assert_eq!(instruction.memory_index_scale(), 1 << scale);
            }
            None => assert_eq!(instruction.memory_index(), iced_x86::Register::None),
        }
        assert_eq!(instruction.memory_displacement64().cast_signed(), i64::from(m.disp));
        let from = instruction.op1_register();
        assert_eq!(from.size(), w.bytes() as usize);
        assert_eq!(from.full_register().number(), usize::from(reg.0));
    }
}
