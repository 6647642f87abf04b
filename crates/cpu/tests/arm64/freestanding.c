// Integer, bit and floating-point code without a C library; prints checksums.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef long i64;
typedef int i32;

static long sys3(long n, long a, long b, long c) {
    register long x8 __asm__("x8") = n;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
}

static void show(const char *name, u64 v) {
    char line[64];
    int n = 0;
    while (*name) line[n++] = *name++;
    line[n++] = ' ';
    for (int i = 60; i >= 0; i -= 4) line[n++] = "0123456789abcdef"[v >> i & 15];
    line[n++] = '\n';
    sys3(64, 1, (long)line, n);
}

static u64 state = 88172645463325252ul;
static u64 rnd(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static u64 integers(void) {
    u64 s = 0;
    for (int i = 0; i < 2000; i++) {
        u64 a = rnd(), b = rnd() >> (i & 63);
        i64 sa = (i64)a, sb = (i64)b;
        u32 wa = (u32)a, wb = (u32)b;
        s += a / (b | 1) + a % (b | 1) + (u64)(sa / (sb | 1)) + (u64)((i32)wa / (i32)(wb | 1));
        s ^= (u64)(((unsigned __int128)a * b) >> 64) ^ (u64)(((__int128)sa * sb) >> 64);
        s += (u64)((i64)(i32)wa * (i32)wb) + (u64)wa * wb;
        s ^= __builtin_bswap64(a) + __builtin_bswap32(wa) + __builtin_bswap16((u16)a);
        s += (u64)__builtin_clzl(a | 1) + (u64)__builtin_ctzl(b | 1ul << 63) + (u64)__builtin_clrsbl(sa);
        s ^= (a << (b & 63)) ^ (a >> (b & 63)) ^ (u64)(sa >> (b & 63)) ^ (wa >> (wb & 31) | wa << (-wb & 31));
        s += (sa < sb) + (a < b) * 2 + ((i32)wa < (i32)wb) * 4 + (sa > 0 && sb > 0) * 8 + (wa == wb || a > b) * 16;
        unsigned __int128 wide = ((unsigned __int128)a << 64 | b) + s;
        wide = wide * 3 - a;
        s ^= (u64)(wide >> 64) + (u64)wide;
    }
    return s;
}

static u64 fields(void) {
    struct { u32 a : 5, b : 11, c : 16; i64 d : 23, e : 41; } f = {0};
    u64 s = 0;
    for (int i = 0; i < 1000; i++) {
        u64 a = rnd();
        f.a = (u32)a & 31;
        f.b += (u32)(a >> 7) & 2047;
        f.c ^= (u16)(a >> 20);
        f.d = f.d * 3 + (i64)(a & 0xffff);
        f.e -= (i64)(a >> 33);
        s = s * 31 + (u64)f.a + (u64)f.b * f.c + (u64)f.d + (u64)f.e;
    }
    return s;
}

static u64 bits_of(double d) {
    union { double d; u64 u; } x = {d};
    return x.u;
}

#define ONE(name, insn) static double name(double x) { double r; __asm__(insn " %d0, %d1" : "=w"(r) : "w"(x)); return r; }
ONE(root, "fsqrt")
ONE(down, "frintm")
ONE(cut, "frintz")

static u64 floats(void) {
    double d = 1.25, sum = 0;
    float f = 0.5f;
    u64 s = 0;
    for (int i = 1; i < 2000; i++) {
        double x = (double)(i64)rnd() / 1e12, y = (double)(rnd() >> 40) + 0.5;
        d = d * 0.75 + x / y - (double)(float)y;
        f = f * 0.5f + (float)x * 3.0f;
        sum += d > 0 ? d : -d;
        sum += root(y) + down(x) + cut(d) + (x > y) + (d <= x);
        s += (u64)(i64)d + (u64)(i32)f + (u64)y + (u32)(i32)(x * 1e-3);
        s ^= bits_of(sum) ^ bits_of(d) ^ bits_of(f);
    }
    return s;
}

static u8 bytes[4096];
static u32 words[1024];
static double vector[512];

// gcc -O3 turns these into Advanced SIMD.
static u64 vectors(void) {
    u64 s = 0;
    for (int i = 0; i < 4096; i++) bytes[i] = (u8)rnd();
    for (int i = 0; i < 1024; i++) words[i] = (u32)rnd();
    for (int i = 0; i < 512; i++) vector[i] = (double)(i32)rnd() * 0.25;
    u32 sum = 0, high = 0;
    for (int i = 0; i < 4096; i++) sum += bytes[i];
    for (int i = 0; i < 1024; i++) high = words[i] > high ? words[i] : high;
    for (int i = 0; i < 1024; i++) words[i] = words[i] * 5 + (words[i] >> 3) - bytes[i];
    for (int i = 0; i < 4096; i++) bytes[i] = bytes[i] > 100 ? bytes[i] - 100 : bytes[i] + 3;
    for (int i = 1; i < 512; i++) vector[i] = vector[i] * 1.5 + vector[i - 1];
    for (int i = 0; i < 512; i++) vector[i] = vector[i] < 0 ? -vector[i] : vector[i];
    i64 products = 0;
    for (int i = 0; i < 1024; i++) products += (i64)(i32)words[i] * (signed char)bytes[i];
    double total = 0;
    for (int i = 0; i < 512; i++) total += vector[i];
    for (int i = 0; i < 4096; i++) s = s * 33 + bytes[i];
    return s ^ sum ^ high ^ (u64)products ^ bits_of(total);
}

static u64 atomics(void) {
    static u64 a;
    static u32 b;
    static u8 c;
    u64 s = 0;
    for (u64 i = 0; i < 500; i++) {
        s += __atomic_fetch_add(&a, i, __ATOMIC_SEQ_CST);
        s ^= __atomic_exchange_n(&b, (u32)i, __ATOMIC_ACQ_REL);
        s += __atomic_fetch_xor(&c, (u8)i, __ATOMIC_RELAXED);
        u64 expected = i & 1 ? a : i;
        s += (u64)__atomic_compare_exchange_n(&a, &expected, a + 3, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        s ^= expected + __atomic_load_n(&a, __ATOMIC_ACQUIRE);
        __atomic_store_n(&b, (u32)s, __ATOMIC_RELEASE);
    }
    return s;
}

static u64 fib(u64 n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

static u64 jumps(void) {
    u64 s = 0;
    for (int i = 0; i < 3000; i++) {
        switch (rnd() % 11) {
            case 0: s += 3; break;
            case 1: s ^= s << 3; break;
            case 2: s -= 7; break;
            case 3: s *= 5; break;
            case 4: s = ~s; break;
            case 5: s += s >> 9; break;
            case 6: s ^= 0x55; break;
            case 7: s += (u64)i; break;
            default: s = s << 1 | s >> 63;
        }
    }
    return s;
}

__attribute__((noreturn)) void start(void) {
    show("integers", integers());
    show("fields", fields());
    show("floats", floats());
    show("vectors", vectors());
    show("atomics", atomics());
    show("fib", fib(18));
    show("jumps", jumps());
    sys3(94, 7, 0, 0);
    __builtin_unreachable();
}
__asm__(".globl _start\n_start: mov x29, #0\n b start\n");
