/* void *dlsym(void *handle, const char *name)
 * void *dlvsym(void *handle, const char *name, const char *version)
 *
 * In assembly, because the real function must return directly to the caller of this one: its return
 * address identifies the calling object. Each also has the versions of the C library, for interposers,
 * which find the next one by dlvsym. A version has an address of its own, because the linker drops an
 * unversioned symbol that has the address of a version. */
        .macro  VERSION name, which, version
        .globl  vgpu_\name\()_\which
        .type   vgpu_\name\()_\which, @function
        .p2align 4
vgpu_\name\()_\which:
        .cfi_startproc
        endbr64
        jmp     .L\name
        .cfi_endproc
        .size   vgpu_\name\()_\which, . - vgpu_\name\()_\which
        .symver vgpu_\name\()_\which, \name@\version
        .endm

        .macro  LOOK_UP name, version
        .globl  \name
        .type   \name, @function
        .p2align 4
\name:
.L\name:
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        \version
        movq    24(%rsp), %rcx
        call    vgpu_choose_symbol
        movq    %rdx, %rcx
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testq   %rcx, %rcx
        jz      1f
        ret
1:      jmp     *vgpu_real_\name\()_address(%rip)
        .cfi_endproc
        .size   \name, . - \name
        VERSION \name, first, GLIBC_2.2.5
        VERSION \name, moved, GLIBC_2.34
        .endm

        .text
        LOOK_UP dlsym, "xorl %edx, %edx"
        LOOK_UP dlvsym

        /* Indirect branches may land on endbr64 only, and shadow stacks are kept. */
        .section .note.gnu.property, "a"
        .p2align 3
        .long   4, 16, 5
        .asciz  "GNU"
        .long   0xc0000002, 4, 3, 0

        .section .note.GNU-stack, "", @progbits
