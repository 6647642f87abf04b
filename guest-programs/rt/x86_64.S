/* Entry point, thread start and memory filling for x86-64. */

        .text

/* The kernel enters here with argc at the top of the stack. */
        .globl  _start
        .type   _start, @function
_start:
        xorl    %ebp, %ebp
        movq    %rsp, %rdi
        andq    $-16, %rsp
        call    rt_start
        ud2
        .size   _start, . - _start

/* long rt_clone_thread(flags, stack, ctid): the child finds a function and its argument on its stack. */
        .section .text.rt_clone_thread, "ax", @progbits
        .globl  rt_clone_thread
        .type   rt_clone_thread, @function
rt_clone_thread:
        movq    %rdx, %r10              /* ctid */
        xorl    %edx, %edx              /* no ptid */
        xorl    %r8d, %r8d              /* no TLS */
        movl    $56, %eax               /* clone */
        syscall
        testq   %rax, %rax
        jnz     1f
        xorl    %ebp, %ebp
        popq    %rax
        popq    %rdi
        call    *%rax
        ud2
1:      ret
        .size   rt_clone_thread, . - rt_clone_thread

/* void *memset(void *to, int byte, size_t len) */
        .section .text.memset, "ax", @progbits
        .globl  memset
        .type   memset, @function
memset:
        movq    %rdi, %r8
        movl    %esi, %eax
        movq    %rdx, %rcx
        rep stosb
        movq    %r8, %rax
        ret
        .size   memset, . - memset

/* void *memcpy(void *to, const void *from, size_t len) */
        .section .text.memcpy, "ax", @progbits
        .globl  memcpy
        .type   memcpy, @function
memcpy:
        movq    %rdi, %rax
        movq    %rdx, %rcx
        rep movsb
        ret
        .size   memcpy, . - memcpy

        .section .note.GNU-stack, "", @progbits
