/* void *dlsym(void *handle, const char *name)
 *
 * In assembly, because the real dlsym must return directly to the caller of this one: its return address
 * identifies the calling object. */
        .text
        .globl  dlsym
        .type   dlsym, %function
        .p2align 4
dlsym:
.Ldlsym:
        .cfi_startproc
        hint    #34                     // bti c
        stp     x29, x30, [sp, #-32]!
        .cfi_def_cfa_offset 32
        .cfi_offset x29, -32
        .cfi_offset x30, -24
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        bl      vgpu_choose_symbol
        mov     x16, x0
        mov     x17, x1
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #32
        .cfi_def_cfa_offset 0
        .cfi_restore x29
        .cfi_restore x30
        cbz     x17, 1f
        mov     x0, x16
        ret
1:      adrp    x16, vgpu_real_dlsym_address
        ldr     x16, [x16, #:lo12:vgpu_real_dlsym_address]
        br      x16
        .cfi_endproc
        .size   dlsym, . - dlsym

        // The same by its version, for interposers, which find the next dlsym with dlvsym.
        .globl  vgpu_dlsym_of_2_17
        .type   vgpu_dlsym_of_2_17, %function
        .p2align 4
vgpu_dlsym_of_2_17:
        .cfi_startproc
        hint    #34                     // bti c
        b       .Ldlsym
        .cfi_endproc
        .size   vgpu_dlsym_of_2_17, . - vgpu_dlsym_of_2_17
        .symver vgpu_dlsym_of_2_17, dlsym@GLIBC_2.17

        // Indirect branches may land on bti only.
        .section .note.gnu.property, "a"
        .p2align 3
        .word   4, 16, 5
        .asciz  "GNU"
        .word   0xc0000000, 4, 1, 0

        .section .note.GNU-stack, "", %progbits
