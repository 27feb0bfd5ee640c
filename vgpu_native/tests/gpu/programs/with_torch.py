"""PyTorch under a limit: prints one line, `given MiB, refused by, total MiB, free MiB`.

The status is 77 if PyTorch or a device is missing.
"""

import sys

CHUNK_MIB = 64

try:
    import torch
except ImportError:
    sys.exit(77)


def main() -> int:
    """Allocate until the limit refuses."""
    if not torch.cuda.is_available():
        return 77
    free, total = torch.cuda.mem_get_info()
    held = []
    try:
        while len(held) * CHUNK_MIB * 2**20 <= total:
            held.append(torch.empty(CHUNK_MIB * 2**20, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError as error:
        refused = type(error).__name__
    else:
        refused = "nothing"
    print(f"{len(held) * CHUNK_MIB}\t{refused}\t{total // 2**20}\t{free // 2**20}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
