/* Linux system calls on x86-64: numbers and the calling convention. */
#pragma once

#define SYS_READ 0
#define SYS_WRITE 1
#define SYS_CLOSE 3
#define SYS_LSEEK 8
#define SYS_MMAP 9
#define SYS_MPROTECT 10
#define SYS_MUNMAP 11
#define SYS_IOCTL 16
#define SYS_SCHED_YIELD 24
#define SYS_MREMAP 25
#define SYS_MADVISE 28
#define SYS_NANOSLEEP 35
#define SYS_CLONE 56
#define SYS_EXIT 60
#define SYS_WAIT4 61
#define SYS_PRCTL 157
#define SYS_FUTEX 202
#define SYS_SCHED_SETAFFINITY 203
#define SYS_CLOCK_GETTIME 228
#define SYS_EXIT_GROUP 231
#define SYS_OPENAT 257
#define SYS_PIPE2 293

static inline long syscall6(long nr, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long ret;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}
