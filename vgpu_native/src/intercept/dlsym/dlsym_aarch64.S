/* void *dlsym(void *handle, const char *name)
 * void *dlvsym(void *handle, const char *name, const char *version)
 *
 * In assembly, because the real function must return directly to the caller of this one: its return
 * address identifies the calling object. Each also has the versions of the C library, for interposers,
 * which find the next one by dlvsym. A version has an address of its own, because the linker drops an
 * unversioned symbol that has the address of a version. */
        .macro  VERSION name, which, version
        .globl  vgpu_\name\()_\which
        .type   vgpu_\name\()_\which, %function
        .p2align 4
vgpu_\name\()_\which:
        .cfi_startproc
        hint    #34                     // bti c
        b       .L\name
        .cfi_endproc
        .size   vgpu_\name\()_\which, . - vgpu_\name\()_\which
        .symver vgpu_\name\()_\which, \name@\version
        .endm

        .macro  LOOK_UP name, version
        .globl  \name
        .type   \name, %function
        .p2align 4
\name:
.L\name:
        .cfi_startproc
        hint    #34                     // bti c
        stp     x29, x30, [sp, #-48]!
        .cfi_def_cfa_offset 48
        .cfi_offset x29, -48
        .cfi_offset x30, -40
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        str     x2, [sp, #32]
        \version
        mov     x3, x30
        bl      vgpu_choose_symbol
        mov     x16, x0
        mov     x17, x1
        ldr     x2, [sp, #32]
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #48
        .cfi_def_cfa_offset 0
        .cfi_restore x29
        .cfi_restore x30
        cbz     x17, 1f
        mov     x0, x16
        ret
1:      adrp    x16, vgpu_real_\name\()_address
        ldr     x16, [x16, #:lo12:vgpu_real_\name\()_address]
        br      x16
        .cfi_endproc
        .size   \name, . - \name
        VERSION \name, first, GLIBC_2.17
        VERSION \name, moved, GLIBC_2.34
        .endm

        .text
        LOOK_UP dlsym, "mov x2, xzr"
        LOOK_UP dlvsym

        // Indirect branches may land on bti only.
        .section .note.gnu.property, "a"
        .p2align 3
        .word   4, 16, 5
        .asciz  "GNU"
        .word   0xc0000000, 4, 1, 0

        .section .note.GNU-stack, "", %progbits
