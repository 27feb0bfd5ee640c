"""PyTorch under a limit: prints tab-separated names and values.

The status is 77 if PyTorch or a device is missing.
"""

import sys

CHUNK_MIB = 64
MIB = 2**20

try:
    import torch
except ImportError as error:
    print(f"PyTorch cannot be imported: {error}", file=sys.stderr)
    sys.exit(77)


def main() -> int:
    """Multiply with cuBLAS, then allocate until the limit refuses, then multiply again."""
    if not torch.cuda.is_available():
        print("PyTorch finds no device", file=sys.stderr)
        return 77
    free, total = torch.cuda.mem_get_info()
    square = torch.ones(1024, 1024, device="cuda")
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    right = bool((square @ square)[0, 0] == 1024)
    print(f"total_mib\t{total // MIB}\nfree_mib\t{free // MIB}")
    print(f"cublas_mib\t{(before - torch.cuda.mem_get_info()[0]) / MIB:.1f}")
    held, refused = [], "nothing"
    try:
        while len(held) * CHUNK_MIB * MIB <= total:
            held.append(torch.empty(CHUNK_MIB * MIB, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError as error:
        refused = type(error).__name__
    print(f"given_mib\t{len(held) * CHUNK_MIB}\nrefused_by\t{refused}")
    del held[-2:]
    right = right and bool((square @ square)[1, 1] == 1024)
    print(f"product\t{'right' if right else 'wrong'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
