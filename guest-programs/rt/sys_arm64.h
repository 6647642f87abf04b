/* Linux system calls on arm64: numbers and the calling convention. */
#pragma once

#define SYS_IOCTL 29
#define SYS_OPENAT 56
#define SYS_CLOSE 57
#define SYS_PIPE2 59
#define SYS_LSEEK 62
#define SYS_READ 63
#define SYS_WRITE 64
#define SYS_EXIT 93
#define SYS_EXIT_GROUP 94
#define SYS_FUTEX 98
#define SYS_NANOSLEEP 101
#define SYS_CLOCK_GETTIME 113
#define SYS_SCHED_SETAFFINITY 122
#define SYS_SCHED_YIELD 124
#define SYS_PRCTL 167
#define SYS_MUNMAP 215
#define SYS_MREMAP 216
#define SYS_CLONE 220
#define SYS_MMAP 222
#define SYS_MPROTECT 226
#define SYS_MADVISE 233
#define SYS_WAIT4 260

static inline long syscall6(long nr, long a, long b, long c, long d, long e, long f) {
    register long x8 __asm__("x8") = nr;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc #0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
