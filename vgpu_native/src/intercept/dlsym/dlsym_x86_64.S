/* void *dlsym(void *handle, const char *name)
 *
 * In assembly, because the real dlsym must return directly to the caller of this one: its return address
 * identifies the calling object. */
        .text
        .globl  dlsym
        .type   dlsym, @function
        .p2align 4
dlsym:
.Ldlsym:
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    vgpu_choose_symbol
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testq   %rdx, %rdx
        jz      1f
        ret
1:      jmp     *vgpu_real_dlsym_address(%rip)
        .cfi_endproc
        .size   dlsym, . - dlsym

        /* The same by its version, for interposers, which find the next dlsym with dlvsym. */
        .globl  vgpu_dlsym_of_2_2_5
        .type   vgpu_dlsym_of_2_2_5, @function
        .p2align 4
vgpu_dlsym_of_2_2_5:
        .cfi_startproc
        endbr64
        jmp     .Ldlsym
        .cfi_endproc
        .size   vgpu_dlsym_of_2_2_5, . - vgpu_dlsym_of_2_2_5
        .symver vgpu_dlsym_of_2_2_5, dlsym@GLIBC_2.2.5

        /* Indirect branches may land on endbr64 only, and shadow stacks are kept. */
        .section .note.gnu.property, "a"
        .p2align 3
        .long   4, 16, 5
        .asciz  "GNU"
        .long   0xc0000002, 4, 3, 0

        .section .note.GNU-stack, "", @progbits
