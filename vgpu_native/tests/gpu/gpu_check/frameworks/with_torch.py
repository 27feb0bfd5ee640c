"""PyTorch under a limit: prints tab-separated names and values.

The status is 77 if PyTorch or a device is missing.
"""

import sys

from steps import MIB, step

CHUNK_MIB = 64

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
    _, total = torch.cuda.mem_get_info()
    square = torch.ones(1024, 1024, device="cuda")
    torch.cuda.synchronize()
    step("context", *torch.cuda.mem_get_info())
    right = bool((square @ square)[0, 0] == 1024)
    step("product", *torch.cuda.mem_get_info())
    held, refused = [], "nothing"
    try:
        while len(held) * CHUNK_MIB * MIB <= total:
            held.append(torch.empty(CHUNK_MIB * MIB, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError as error:
        refused = type(error).__name__
    print(f"given_mib\t{len(held) * CHUNK_MIB}\nrefused_by\t{refused}")
    step("full", *torch.cuda.mem_get_info())
    del held[-2:]
    right = right and bool((square @ square)[1, 1] == 1024)
    print(f"product\t{'right' if right else 'wrong'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
