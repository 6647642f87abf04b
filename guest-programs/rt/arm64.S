/* Entry point, thread start and memory filling for arm64. */

        .text

/* The kernel enters here with argc at the top of the stack. */
        .globl  _start
        .type   _start, %function
_start:
        mov     x29, xzr
        mov     x30, xzr
        mov     x0, sp
        bl      rt_start
        brk     #1
        .size   _start, . - _start

/* long rt_clone_thread(flags, stack, ctid): the child finds a function and its argument on its stack. */
        .section .text.rt_clone_thread, "ax", %progbits
        .globl  rt_clone_thread
        .type   rt_clone_thread, %function
rt_clone_thread:
        mov     x4, x2                  /* ctid */
        mov     x2, xzr                 /* no ptid */
        mov     x3, xzr                 /* no TLS */
        mov     x8, #220                /* clone */
        svc     #0
        cbnz    x0, 1f
        mov     x29, xzr
        ldp     x1, x0, [sp], #16
        blr     x1
        brk     #1
1:      ret
        .size   rt_clone_thread, . - rt_clone_thread

/* void *memset(void *to, int byte, size_t len) */
        .section .text.memset, "ax", %progbits
        .globl  memset
        .type   memset, %function
memset:
        mov     x3, x0                  /* where the next store goes */
        and     x1, x1, #0xff
        mov     x4, #0x0101010101010101
        mul     x1, x1, x4
        cmp     x2, #64
        b.lo    3f
2:      stp     x1, x1, [x3]
        stp     x1, x1, [x3, #16]
        stp     x1, x1, [x3, #32]
        stp     x1, x1, [x3, #48]
        add     x3, x3, #64
        sub     x2, x2, #64
        cmp     x2, #64
        b.hs    2b
3:      cbz     x2, 5f
4:      strb    w1, [x3], #1
        subs    x2, x2, #1
        b.ne    4b
5:      ret
        .size   memset, . - memset

/* void *memcpy(void *to, const void *from, size_t len) */
        .section .text.memcpy, "ax", %progbits
        .globl  memcpy
        .type   memcpy, %function
memcpy:
        mov     x3, x0
1:      cmp     x2, #16
        b.lo    2f
        ldp     x4, x5, [x1], #16
        stp     x4, x5, [x3], #16
        sub     x2, x2, #16
        b       1b
2:      cbz     x2, 4f
3:      ldrb    w4, [x1], #1
        strb    w4, [x3], #1
        subs    x2, x2, #1
        b.ne    3b
4:      ret
        .size   memcpy, . - memcpy

        .section .note.GNU-stack, "", %progbits
