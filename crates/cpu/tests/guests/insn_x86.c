// Executes x86-64 instructions on many operands and prints one line per instruction: a hash of all results and of
// the flags that the manual defines. Run natively and under the emulator: the lines must be equal.
// `insn_x86 NAME` prints every case of one instruction instead.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
typedef uint64_t u64;
typedef unsigned __int128 u128;
static u64 hash;
static const char *only;
static u64 seed = 88172645463325252ull;
static u64 rnd(void) { seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17; return seed; }
static void begin(void) { hash = 0xcbf29ce484222325ull; seed = 88172645463325252ull; }
static void mix(u64 v) { hash = (hash ^ v) * 0x100000001b3ull; hash ^= hash >> 29; }
static int wanted(const char *name) { return !only || !strcmp(only, name); }
static void end(const char *name) { if (wanted(name)) printf("%s %016llx\n", name, (unsigned long long)hash); }
static const u64 edge[] = {0, 1, 2, 3, 0x7f, 0x80, 0x81, 0xff, 0x100, 0x7fff, 0x8000, 0xffff, 0x10000, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000, 0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff, 0x0123456789abcdef, 0xfedcba9876543210};
#define NE (sizeof edge / sizeof *edge)
static u64 value(unsigned i) { return i < NE ? edge[i] : rnd(); }
#define CF 1
#define PF 4
#define AF 16
#define ZF 64
#define SF 128
#define OF 2048
#define ALL (CF | PF | AF | ZF | SF | OF)
#define SHOW(name, ...) do { if (only && !strcmp(only, name)) { printf(__VA_ARGS__); } } while (0)

// Two operands: ins b, a
#define TWO1(name, ins, m, mask) do { begin(); for (unsigned i = 0; i < NE + 20; i++) for (unsigned j = 0; j < NE + 20; j++) for (int c = 0; c < 2; c++) { \
  u64 a = value(i), b = value(j), f = c ? ALL : 0, a0 = a; \
  __asm__ volatile("pushfq; pop %%rax; and $~0x8d5, %%rax; or %1, %%rax; push %%rax; popfq; " ins " %" m "2, %" m "0; pushfq; pop %1" : "+r"(a), "+r"(f) : "r"(b) : "rax", "cc", "memory"); \
  mix(a); mix(f & (mask)); SHOW(name, "%llx,%llx,%d -> %llx %llx\n", (unsigned long long)a0, (unsigned long long)b, c, (unsigned long long)a, (unsigned long long)(f & (mask))); } end(name); } while (0)
#define TWO(ins, mask) TWO1(ins "8", ins "b", "b", mask); TWO1(ins "16", ins "w", "w", mask); TWO1(ins "32", ins "l", "k", mask); TWO1(ins "64", ins "q", "q", mask)
#define TWO_NO8(ins, mask) TWO1(ins "16", ins "w", "w", mask); TWO1(ins "32", ins "l", "k", mask); TWO1(ins "64", ins "q", "q", mask)
// The same on memory
#define MEM1(name, ins, m, mask) do { begin(); for (unsigned i = 0; i < NE + 20; i++) for (unsigned j = 0; j < NE + 20; j++) for (int c = 0; c < 2; c++) { \
  volatile u64 a = value(i); u64 b = value(j), f = c ? ALL : 0; \
  __asm__ volatile("pushfq; pop %%rax; and $~0x8d5, %%rax; or %1, %%rax; push %%rax; popfq; " ins " %" m "2, (%3); pushfq; pop %1" : "+m"(a), "+r"(f) : "r"(b), "r"(&a) : "rax", "cc", "memory"); \
  mix(a); mix(f & (mask)); } end(name); } while (0)
#define MEM(ins, mask) MEM1(ins "8m", ins "b", "b", mask); MEM1(ins "16m", ins "w", "w", mask); MEM1(ins "32m", ins "l", "k", mask); MEM1(ins "64m", ins "q", "q", mask)
// One operand
#define ONE1(name, ins, m, mask) do { begin(); for (unsigned i = 0; i < NE + 60; i++) for (int c = 0; c < 2; c++) { \
  u64 a = value(i), f = c ? ALL : 0; \
  __asm__ volatile("pushfq; pop %%rax; and $~0x8d5, %%rax; or %1, %%rax; push %%rax; popfq; " ins " %" m "0; pushfq; pop %1" : "+r"(a), "+r"(f) : : "rax", "cc", "memory"); \
  mix(a); mix(f & (mask)); } end(name); } while (0)
#define ONE(ins, mask) ONE1(ins "8", ins "b", "b", mask); ONE1(ins "16", ins "w", "w", mask); ONE1(ins "32", ins "l", "k", mask); ONE1(ins "64", ins "q", "q", mask)
// Shift by CL; flags that need count 1 are compared for count 1 only
#define SHIFT1(name, ins, m, mask1, maskn, modulus) do { begin(); for (unsigned i = 0; i < NE + 10; i++) for (unsigned n = 0; n < 70; n++) for (int c = 0; c < 2; c++) { \
  u64 a = value(i), f = c ? ALL : 0, a0 = a; u64 k = n & (modulus); \
  __asm__ volatile("pushfq; pop %%rax; and $~0x8d5, %%rax; or %1, %%rax; push %%rax; popfq; " ins " %%cl, %" m "0; pushfq; pop %1" : "+r"(a), "+r"(f) : "c"((u64)n) : "rax", "cc", "memory"); \
  u64 mask = k == 0 ? ALL : k == 1 ? (mask1) : (maskn); mix(a); mix(f & mask); \
  SHOW(name, "%llx,%u,%d -> %llx %llx\n", (unsigned long long)a0, n, c, (unsigned long long)a, (unsigned long long)(f & mask)); } end(name); } while (0)
#define SHIFT(ins, m1, mn) SHIFT1(ins "32", ins "l", "k", m1, mn, 31); SHIFT1(ins "64", ins "q", "q", m1, mn, 63)
#define SHIFT_NARROW(ins, m1, mn) SHIFT1(ins "8", ins "b", "b", m1, mn, 31); SHIFT1(ins "16", ins "w", "w", m1, mn, 31)
#define DSHIFT1(name, ins, m, modulus) do { begin(); for (unsigned i = 0; i < NE; i++) for (unsigned j = 0; j < NE; j++) for (unsigned n = 0; n < 66; n += 3) { \
  u64 a = value(i), b = value(j), f = 0; u64 k = n & (modulus); \
  __asm__ volatile("test %%eax,%%eax; " ins " %%cl, %" m "3, %" m "0; pushfq; pop %1" : "+r"(a), "+r"(f) : "c"((u64)n), "r"(b) : "rax", "cc", "memory"); \
  mix(a); if (k) mix(f & (CF | ZF | SF | PF)); } end(name); } while (0)
// Widening multiply and divide
#define WIDE1(name, ins, m, mask) do { begin(); for (unsigned i = 0; i < NE + 20; i++) for (unsigned j = 0; j < NE + 20; j++) { \
  u64 a = value(i), d = rnd(), b = value(j), f; \
  __asm__ volatile(ins " %" m "3; pushfq; pop %2" : "+a"(a), "+d"(d), "=&r"(f) : "r"(b) : "cc", "memory"); mix(a); mix(d); mix(f & (mask)); } end(name); } while (0)
#define DIV1(name, ins, m, bits, sgn) do { begin(); for (unsigned i = 0; i < NE + 20; i++) for (unsigned j = 1; j < NE + 20; j++) { \
  u64 a = value(i), b = value(j), d; u64 mk = bits == 64 ? ~0ull : (1ull << bits) - 1; if (!(b & mk) || (sgn && (b & mk) == mk)) continue; \
  if (bits == 8) { a = sgn ? (u64)(int64_t)(int8_t)a & 0xffff : a & 0xff; d = rnd(); } else { u64 top = (a >> (bits - 1)) & 1; d = sgn && top ? mk : 0; } \
  __asm__ volatile(ins " %" m "2" : "+a"(a), "+d"(d) : "r"(b) : "cc", "memory"); mix(a); mix(d); } end(name); } while (0)
#define SET1(cc) do { begin(); for (unsigned i = 0; i < 64; i++) { u64 f = (i & 1) | (i & 2) << 1 | (i & 4) << 2 | (i & 8) << 3 | (i & 16) << 3 | (u64)(i & 32) << 6, r = 0x1111, q = 0x2222222222222222, q2 = q; \
  __asm__ volatile("pushfq; pop %%rax; and $~0x8d5, %%rax; or %3, %%rax; push %%rax; popfq; set" cc " %b0; cmov" cc "q %3, %1; cmov" cc "l %k3, %k2; j" cc " 1f; add $7, %0; 1:" : "+r"(r), "+r"(q), "+r"(q2) : "r"(f) : "rax", "cc"); mix(r); mix(q); mix(q2); } end("cc_" cc); } while (0)
// SSE
typedef u64 v2 __attribute__((vector_size(16)));
static v2 vectors[64];
static void make_vectors(void) {
  static const double d[] = {0.0, -0.0, 1.0, -1.5, 1e300, -1e-300, 3.5, 2.5, -2.5, 4294967296.5, -2147483649.0, 9.3e18, 0.1, 123456.789};
  seed = 99;
  for (int i = 0; i < 64; i++) {
    double x = d[i % 14], y = d[(i * 5 + 3) % 14]; float f[4] = {(float)d[i % 14], (float)d[(i + 1) % 14], (float)d[(i + 5) % 14], -7.25f};
    if (i < 14) { u64 p[2]; memcpy(p, &x, 8); memcpy(p + 1, &y, 8); vectors[i] = (v2){p[0], p[1]}; }
    else if (i < 28) memcpy(&vectors[i], f, 16);
    else if (i < 31) vectors[i] = (v2){0x7ff0000000000000, 0xfff0000000000000};
    else if (i < 34) vectors[i] = (v2){0x7ff8000000001234, 0xfff4000000005678 + i};
    else if (i < 37) vectors[i] = (v2){0x7f800000ff800000, 0x7fa0123400000001 + i};
    else if (i < 40) vectors[i] = (v2){0x0000000000000001, 0x8000000000000123};
    else if (i < 44) vectors[i] = (v2){edge[i % NE], edge[(i * 3) % NE]};
    else vectors[i] = (v2){rnd(), rnd()};
  }
}
#define V2(ins, tail) do { begin(); for (int i = 0; i < 64; i++) for (int j = 0; j < 64; j++) { v2 a = vectors[i], b = vectors[j]; \
  __asm__ volatile(ins " %1, %0" : "+x"(a) : "x"(b)); mix(a[0]); mix(a[1]); v2 c = vectors[i]; __asm__ volatile(ins " %1, %0" : "+x"(c) : "m"(vectors[j])); mix(c[0]); mix(c[1]); \
  SHOW(ins tail, "%016llx%016llx,%016llx%016llx -> %016llx%016llx\n", (unsigned long long)vectors[i][1], (unsigned long long)vectors[i][0], (unsigned long long)b[1], (unsigned long long)b[0], (unsigned long long)a[1], (unsigned long long)a[0]); } end(ins tail); } while (0)
#define VI1(ins, imm) for (int i = 0; i < 64; i++) for (int j = 0; j < 64; j += 3) { v2 a = vectors[i], b = vectors[j]; __asm__ volatile(ins " $" #imm ", %1, %0" : "+x"(a) : "x"(b)); mix(a[0]); mix(a[1]); }
#define VI(ins) do { begin(); VI1(ins, 0) VI1(ins, 1) VI1(ins, 2) VI1(ins, 3) VI1(ins, 4) VI1(ins, 5) VI1(ins, 6) VI1(ins, 7) VI1(ins, 27) VI1(ins, 228) VI1(ins, 177) VI1(ins, 255) end(ins); } while (0)
#define VP(ins) do { begin(); VI1(ins, 0) VI1(ins, 1) VI1(ins, 2) VI1(ins, 3) VI1(ins, 4) VI1(ins, 5) VI1(ins, 6) VI1(ins, 7) end(ins); } while (0)
#define VS1(ins, imm) for (int i = 0; i < 64; i++) { v2 a = vectors[i]; __asm__ volatile(ins " $" #imm ", %0" : "+x"(a)); mix(a[0]); mix(a[1]); }
#define VS(ins) do { begin(); VS1(ins, 0) VS1(ins, 1) VS1(ins, 2) VS1(ins, 7) VS1(ins, 8) VS1(ins, 15) VS1(ins, 16) VS1(ins, 31) VS1(ins, 32) VS1(ins, 63) VS1(ins, 64) VS1(ins, 200) end(ins "_imm"); } while (0)
#define VSX(ins) do { begin(); for (int i = 0; i < 64; i++) for (u64 n = 0; n < 70; n++) { v2 a = vectors[i], b = {n, 7}; __asm__ volatile(ins " %1, %0" : "+x"(a) : "x"(b)); mix(a[0]); mix(a[1]); } end(ins); } while (0)
#define VR(ins, r) do { begin(); for (int i = 0; i < 64; i++) { u64 d = 0; v2 a = vectors[i]; __asm__ volatile(ins " %1, %" r "0" : "=r"(d) : "x"(a)); mix(d); } end(ins); } while (0)
#define RV(ins, r) do { begin(); for (unsigned i = 0; i < NE + 40; i++) { u64 s = value(i); v2 a = vectors[i & 63]; __asm__ volatile(ins " %" r "1, %0" : "+x"(a) : "r"(s)); mix(a[0]); mix(a[1]); } end(ins); } while (0)
#define VF(ins) do { begin(); for (int i = 0; i < 64; i++) for (int j = 0; j < 64; j++) { u64 f; v2 a = vectors[i], b = vectors[j]; __asm__ volatile(ins " %2, %1; pushfq; pop %0" : "=r"(f) : "x"(a), "x"(b) : "cc"); mix(f & ALL); } end(ins); } while (0)

static void integer(void) {
  TWO("add", ALL); TWO("sub", ALL); TWO("adc", ALL); TWO("sbb", ALL); TWO("cmp", ALL);
  TWO("and", CF | PF | ZF | SF | OF); TWO("or", CF | PF | ZF | SF | OF); TWO("xor", CF | PF | ZF | SF | OF); TWO("test", CF | PF | ZF | SF | OF);
  TWO("mov", 0); TWO("xchg", ALL); TWO("xadd", ALL);
  MEM("add", ALL); MEM("sub", ALL); MEM("adc", ALL); MEM("sbb", ALL); MEM("and", CF | PF | ZF | SF | OF); MEM("lock xor", CF | PF | ZF | SF | OF); MEM("lock xadd", ALL); MEM("xchg", ALL);
  TWO_NO8("imul", CF | OF); TWO_NO8("bsf", ZF); TWO_NO8("bsr", ZF);
  TWO_NO8("bt", CF); TWO_NO8("bts", CF); TWO_NO8("btr", CF); TWO_NO8("btc", CF);
  ONE("inc", ALL); ONE("dec", ALL); ONE("neg", ALL); ONE("not", ALL);
  ONE1("bswap32", "bswapl", "k", 0); ONE1("bswap64", "bswapq", "q", 0);
  SHIFT("shl", CF | PF | ZF | SF | OF, CF | PF | ZF | SF); SHIFT("shr", CF | PF | ZF | SF | OF, CF | PF | ZF | SF); SHIFT("sar", CF | PF | ZF | SF | OF, CF | PF | ZF | SF);
  SHIFT_NARROW("shl", PF | ZF | SF | OF, PF | ZF | SF); SHIFT_NARROW("shr", PF | ZF | SF | OF, PF | ZF | SF); SHIFT_NARROW("sar", CF | PF | ZF | SF | OF, PF | ZF | SF);
  SHIFT("rol", ALL, ALL & ~OF); SHIFT("ror", ALL, ALL & ~OF); SHIFT("rcl", ALL, ALL & ~OF); SHIFT("rcr", ALL, ALL & ~OF);
  SHIFT_NARROW("rol", ALL, ALL & ~OF); SHIFT_NARROW("ror", ALL, ALL & ~OF); SHIFT_NARROW("rcl", PF | AF | ZF | SF, PF | AF | ZF | SF); SHIFT_NARROW("rcr", PF | AF | ZF | SF, PF | AF | ZF | SF);
  DSHIFT1("shld32", "shldl", "k", 31); DSHIFT1("shld64", "shldq", "q", 63); DSHIFT1("shrd32", "shrdl", "k", 31); DSHIFT1("shrd64", "shrdq", "q", 63);
  WIDE1("mul8", "mulb", "b", CF | OF); WIDE1("mul16", "mulw", "w", CF | OF); WIDE1("mul32", "mull", "k", CF | OF); WIDE1("mul64", "mulq", "q", CF | OF);
  WIDE1("imul8w", "imulb", "b", CF | OF); WIDE1("imul16w", "imulw", "w", CF | OF); WIDE1("imul32w", "imull", "k", CF | OF); WIDE1("imul64w", "imulq", "q", CF | OF);
  DIV1("div8", "divb", "b", 8, 0); DIV1("div16", "divw", "w", 16, 0); DIV1("div32", "divl", "k", 32, 0); DIV1("div64", "divq", "q", 64, 0);
  DIV1("idiv8", "idivb", "b", 8, 1); DIV1("idiv16", "idivw", "w", 16, 1); DIV1("idiv32", "idivl", "k", 32, 1); DIV1("idiv64", "idivq", "q", 64, 1);
  SET1("o"); SET1("no"); SET1("b"); SET1("ae"); SET1("e"); SET1("ne"); SET1("be"); SET1("a"); SET1("s"); SET1("ns"); SET1("p"); SET1("np"); SET1("l"); SET1("ge"); SET1("le"); SET1("g");
  begin(); for (unsigned i = 0; i < NE + 20; i++) { u64 a = value(i), r; __asm__("movzbl %b1, %k0" : "=r"(r) : "r"(a)); mix(r); __asm__("movsbl %b1, %k0" : "=r"(r) : "r"(a)); mix(r); __asm__("movsbq %b1, %0" : "=r"(r) : "r"(a)); mix(r); __asm__("movswq %w1, %0" : "=r"(r) : "r"(a)); mix(r); __asm__("movslq %k1, %0" : "=r"(r) : "r"(a)); mix(r); __asm__("movzwl %w1, %k0" : "=r"(r) : "r"(a)); mix(r); r = 0x1122334455667788; __asm__("mov %b1, %b0" : "+r"(r) : "r"(a)); mix(r); r = a; __asm__("mov %%al, %%ah" : "+a"(r)); mix(r); __asm__("add %%ah, %%al" : "+a"(r) :: "cc"); mix(r); __asm__("cwtl" : "+a"(r)); mix(r); __asm__("cltq" : "+a"(r)); mix(r); u64 d; __asm__("cltd" : "+a"(r), "=d"(d)); mix(d); r = a; __asm__("cqto" : "+a"(r), "=d"(d)); mix(d); __asm__("popcnt %1, %0" : "=r"(r) : "r"(a) : "cc"); mix(r); __asm__("lea 5(%1,%1,4), %k0" : "=r"(r) : "r"(a)); mix(r); } end("extend");
  begin(); for (unsigned i = 0; i < NE + 20; i++) for (unsigned j = 0; j < 200; j += 7) { u64 mem[4] = {value(i), rnd(), rnd(), rnd()}; u64 f; int64_t k = (int64_t)j - 60; __asm__ volatile("btsq %2, (%1); pushfq; pop %0" : "=r"(f) : "r"(mem + 1), "r"(k) : "cc", "memory"); mix(f & CF); __asm__ volatile("btrl %k2, (%1); pushfq; pop %0" : "=r"(f) : "r"(mem + 1), "r"((int)k) : "cc", "memory"); mix(f & CF); for (int q = 0; q < 4; q++) mix(mem[q]); } end("bt_mem");
  begin(); for (unsigned i = 0; i < NE + 20; i++) for (unsigned j = 0; j < NE; j++) for (int same = 0; same < 2; same++) { u64 m = value(i), o = value(j), acc = same ? m : rnd(), f; __asm__ volatile("lock cmpxchgq %3, %1; pushfq; pop %2" : "+a"(acc), "+m"(m), "=r"(f) : "r"(o) : "cc"); mix(acc); mix(m); mix(f & ALL); acc = same ? m : rnd(); __asm__ volatile("lock cmpxchgl %k3, %1; pushfq; pop %2" : "+a"(acc), "+m"(m), "=r"(f) : "r"(o) : "cc"); mix(acc); mix(m); mix(f & ALL); acc = same ? m : rnd(); __asm__ volatile("lock cmpxchgb %b3, %1; pushfq; pop %2" : "+a"(acc), "+m"(m), "=r"(f) : "r"(o) : "cc"); mix(acc); mix(m); mix(f & ALL);
    u128 wide __attribute__((aligned(16))) = ((u128)value(j) << 64) | value(i); u64 lo = same ? (u64)wide : 1, hi = wide >> 64, z; __asm__ volatile("lock cmpxchg16b %1; setz %b2" : "+a"(lo), "+m"(wide), "=r"(z), "+d"(hi) : "b"(7ull), "c"(9ull) : "cc"); mix(lo); mix(hi); mix(z & 1); mix(wide); mix(wide >> 64); } end("cmpxchg");
  begin(); { char src[300], dst[300]; for (int i = 0; i < 300; i++) src[i] = rnd(), dst[i] = 0; for (int n = 0; n < 130; n += 13) { char *s = src + 3, *d = dst + 5; u64 c = n; __asm__ volatile("rep movsb" : "+S"(s), "+D"(d), "+c"(c) :: "memory"); mix(s - src); mix(d - dst); mix(c); c = n / 8; __asm__ volatile("rep movsq" : "+S"(s), "+D"(d), "+c"(c) :: "memory"); mix(s - src); c = n / 4; d = dst; __asm__ volatile("rep stosl" : "+D"(d), "+c"(c) : "a"(0x12345678 + n) : "memory"); mix(d - dst); for (int i = 0; i < 300; i++) mix(dst[i]); s = src; c = 300; u64 z; char what = src[n]; d = src; __asm__ volatile("repne scasb; setz %b2" : "+D"(d), "+c"(c), "=r"(z) : "a"(what) : "cc", "memory"); mix(d - src); mix(c); mix(z & 1); d = dst; s = src; c = 300; __asm__ volatile("repe cmpsb; setb %b3" : "+S"(s), "+D"(d), "+c"(c), "=r"(z) :: "cc", "memory"); mix(s - src); mix(c); mix(z & 1); s = src + 200; d = src + 210; c = 50; __asm__ volatile("std; rep movsb; cld" : "+S"(s), "+D"(d), "+c"(c) :: "memory"); mix(s - src); for (int i = 0; i < 300; i++) mix(src[i]); u64 a = 0x1122334455667788; s = src; __asm__ volatile("lodsw" : "+a"(a), "+S"(s) :: "memory"); mix(a); } } end("string");
  begin(); for (unsigned i = 0; i < NE + 20; i++) { u64 a = value(i), r; __asm__ volatile("push %1; popw %w0; popw %w0; popw %w0; popw %w0" : "=r"(r) : "r"(a)); mix(r & 0xffff); __asm__ volatile("movbe %1, %0" : "=r"(r) : "m"(edge[i % NE])); mix(r); u64 f; __asm__ volatile("mov %1, %%rax; sahf; lahf; pushfq; pop %0; mov %%rax, %1" : "=r"(f), "+r"(a) :: "rax", "cc"); mix(a); mix(f & 0xd5); __asm__ volatile("mov %1, %%rcx; xor %0, %0; 1: inc %0; cmp $5, %0; loopne 1b" : "=&r"(r) : "r"(a & 15 | 1) : "rcx", "cc"); mix(r); __asm__ volatile("stc; cmc; setc %b0; clc; cmc; setc %h0" : "=Q"(r) :: "cc"); mix(r & 0xffff); } end("misc");
}

static void vector(void) {
  make_vectors();
  V2("pand", ""); V2("por", ""); V2("pxor", ""); V2("pandn", ""); V2("andnps", "");
  V2("paddb", ""); V2("paddw", ""); V2("paddd", ""); V2("paddq", ""); V2("psubb", ""); V2("psubw", ""); V2("psubd", ""); V2("psubq", "");
  V2("paddsb", ""); V2("paddsw", ""); V2("paddusb", ""); V2("paddusw", ""); V2("psubsb", ""); V2("psubsw", ""); V2("psubusb", ""); V2("psubusw", "");
  V2("pmullw", ""); V2("pmulhw", ""); V2("pmulhuw", ""); V2("pmuludq", ""); V2("pmaddwd", ""); V2("psadbw", ""); V2("pavgb", ""); V2("pavgw", "");
  V2("pcmpeqb", ""); V2("pcmpeqw", ""); V2("pcmpeqd", ""); V2("pcmpgtb", ""); V2("pcmpgtw", ""); V2("pcmpgtd", "");
  V2("pminub", ""); V2("pmaxub", ""); V2("pminsw", ""); V2("pmaxsw", "");
  V2("punpcklbw", ""); V2("punpcklwd", ""); V2("punpckldq", ""); V2("punpcklqdq", ""); V2("punpckhbw", ""); V2("punpckhwd", ""); V2("punpckhdq", ""); V2("punpckhqdq", "");
  V2("packsswb", ""); V2("packssdw", ""); V2("packuswb", ""); V2("unpcklps", ""); V2("unpckhps", ""); V2("unpcklpd", ""); V2("unpckhpd", "");
  V2("addps", ""); V2("addpd", ""); V2("addss", ""); V2("addsd", ""); V2("subps", ""); V2("subpd", ""); V2("subss", ""); V2("subsd", "");
  V2("mulps", ""); V2("mulpd", ""); V2("mulss", ""); V2("mulsd", ""); V2("divps", ""); V2("divpd", ""); V2("divss", ""); V2("divsd", "");
  V2("minps", ""); V2("minpd", ""); V2("minss", ""); V2("minsd", ""); V2("maxps", ""); V2("maxpd", ""); V2("maxss", ""); V2("maxsd", "");
  V2("sqrtps", ""); V2("sqrtpd", ""); V2("sqrtss", ""); V2("sqrtsd", "");
  V2("cvtps2pd", ""); V2("cvtpd2ps", ""); V2("cvtss2sd", ""); V2("cvtsd2ss", ""); V2("cvtdq2ps", ""); V2("cvtdq2pd", ""); V2("cvtps2dq", ""); V2("cvttps2dq", ""); V2("cvtpd2dq", ""); V2("cvttpd2dq", "");
  VI("pshufd"); VI("pshuflw"); VI("pshufhw"); VI("shufps"); VI("shufpd"); VP("cmpps"); VP("cmppd"); VP("cmpss"); VP("cmpsd");
  VS("psllw"); VS("pslld"); VS("psllq"); VS("psrlw"); VS("psrld"); VS("psrlq"); VS("psraw"); VS("psrad"); VS("pslldq"); VS("psrldq");
  VSX("psllw"); VSX("pslld"); VSX("psllq"); VSX("psrlw"); VSX("psrld"); VSX("psrlq"); VSX("psraw"); VSX("psrad");
  VR("pmovmskb", "k"); VR("movmskps", "k"); VR("movmskpd", "k"); VR("movd", "k"); VR("movq", "q");
  VR("cvtss2si", "k"); VR("cvttss2si", "k"); VR("cvtsd2si", "k"); VR("cvttsd2si", "k"); VR("cvtss2siq", "q"); VR("cvttss2siq", "q"); VR("cvtsd2siq", "q"); VR("cvttsd2siq", "q");
  RV("movd", "k"); RV("movq", "q"); RV("cvtsi2ss", "k"); RV("cvtsi2sd", "k"); RV("cvtsi2ssq", "q"); RV("cvtsi2sdq", "q");
  VF("ucomiss"); VF("comiss"); VF("ucomisd"); VF("comisd");
  begin(); for (int i = 0; i < 64; i++) for (int j = 0; j < 64; j++) { v2 a = vectors[i], b = vectors[j], m; u64 r;
    __asm__ volatile("movhlps %1, %0" : "+x"(a) : "x"(b)); mix(a[0]); mix(a[1]); a = vectors[i]; __asm__ volatile("movlhps %1, %0" : "+x"(a) : "x"(b)); mix(a[0]); mix(a[1]); a = vectors[i]; __asm__ volatile("movss %1, %0" : "+x"(a) : "x"(b)); mix(a[0]); mix(a[1]); a = vectors[i]; __asm__ volatile("movsd %1, %0" : "+x"(a) : "x"(b)); mix(a[0]); mix(a[1]);
    m = b; a = vectors[i]; __asm__ volatile("movlps %1, %0" : "+x"(a) : "m"(m)); mix(a[0]); mix(a[1]); __asm__ volatile("movhpd %1, %0" : "+x"(a) : "m"(m)); mix(a[0]); mix(a[1]); __asm__ volatile("movss %1, %0" : "=x"(a) : "m"(m)); mix(a[0]); mix(a[1]); __asm__ volatile("movsd %1, %0" : "=x"(a) : "m"(m)); mix(a[0]); mix(a[1]); __asm__ volatile("movq %1, %0" : "=x"(a) : "x"(b)); mix(a[0]); mix(a[1]);
    m = (v2){1, 2}; __asm__ volatile("movhps %1, %0" : "+m"(m) : "x"(b)); mix(m[0]); mix(m[1]); __asm__ volatile("movlpd %1, %0" : "+m"(m) : "x"(b)); mix(m[0]); mix(m[1]); __asm__ volatile("movss %1, %0" : "+m"(m) : "x"(b)); mix(m[0]); __asm__ volatile("pextrw $5, %1, %k0" : "=r"(r) : "x"(b)); mix(r); a = vectors[i]; __asm__ volatile("pinsrw $3, %k1, %0" : "+x"(a) : "r"(r)); mix(a[0]); mix(a[1]); __asm__ volatile("movdqu %1, %0" : "=x"(a) : "m"(*(v2 *)((char *)vectors + i + j))); mix(a[0]); mix(a[1]); } end("sse_moves");
}

static void x87(void) {
  static const long double v[] = {0.0L, -0.0L, 1.0L, -1.5L, 3.14159265358979323846L, 1e4000L, -1e-4000L, 1e-4940L, 123456789.125L, -2.5L, 3.5L, 0x1p63L, -0x1p63L, 0x1p64L, 1e18L, 0.1L, 1.0L / 3};
  int n = sizeof v / sizeof *v; begin();
  for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) { long double a = v[i], b = v[j]; volatile long double r[12] = {a + b, a - b, a * b, b != 0 ? a / b : 0, 0}; double d = (double)a; float f = (float)a; u64 w;
    for (int k = 0; k < 4; k++) { long double t = r[k]; u64 lo; unsigned short se; memcpy(&lo, &t, 8); memcpy(&se, (char *)&t + 8, 2); mix(lo); mix(se); } memcpy(&w, &d, 8); mix(w); unsigned x; memcpy(&x, &f, 4); mix(x); mix(a < b); mix(a == b); mix(a > b);
    long double q = a; __asm__ volatile("fabs; fsqrt" : "+t"(q)); memcpy(&w, &q, 8); mix(w); q = a; __asm__ volatile("frndint" : "+t"(q)); memcpy(&w, &q, 8); mix(w); int64_t s; q = a; __asm__ volatile("fldt %1; fistpll %0" : "=m"(s) : "m"(q)); mix(s); short h; __asm__ volatile("fldt %1; fistps %0" : "=m"(h) : "m"(q)); mix(h); unsigned short sw; __asm__ volatile("fxam; fnstsw %0" : "=a"(sw) : "t"(q)); mix(sw & 0x4700);
    if (b != 0 && a < 1e15L && a > -1e15L && (b > 1e-3L || b < -1e-3L)) { long double p = a; __asm__ volatile("fprem; fnstsw %%ax" : "+t"(p), "=a"(sw) : "u"(b)); memcpy(&w, &p, 8); mix(w); mix(sw & 0x4700); p = a; __asm__ volatile("fprem1" : "+t"(p) : "u"(b)); memcpy(&w, &p, 8); mix(w); } q = a; __asm__ volatile("fscale" : "+t"(q) : "u"((long double)(j * 7 - 30))); memcpy(&w, &q, 8); mix(w); long double e; q = a; __asm__ volatile("fxtract" : "=t"(q), "=u"(e) : "0"(a)); memcpy(&w, &q, 8); mix(w); memcpy(&w, &e, 8); mix(w); }
  end("x87");
  begin(); for (int mode = 0; mode < 4; mode++) { unsigned short cw = 0x37f | mode << 10, old; __asm__ volatile("fnstcw %0; fldcw %1" : "=m"(old) : "m"(cw)); for (int i = 0; i < n; i++) for (int j = 1; j < n; j++) { long double a = v[i], b = v[j]; volatile long double r = a + b, s = a * b; u64 lo; long double t = r; memcpy(&lo, &t, 8); mix(lo); t = s; memcpy(&lo, &t, 8); mix(lo); double d = (double)a; memcpy(&lo, &d, 8); mix(lo); int k; __asm__ volatile("fldt %1; fistpl %0" : "=m"(k) : "m"(a)); mix(k); } __asm__ volatile("fldcw %0" :: "m"(old)); } end("x87_rounding");
}

int main(int argc, char **argv) { if (argc > 1) only = argv[1]; integer(); vector(); x87(); return 0; }
