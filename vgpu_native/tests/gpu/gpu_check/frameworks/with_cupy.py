"""CuPy under a limit: prints tab-separated names and values.

The status is 77 if CuPy or a device is missing.
"""

import sys

CHUNK_MIB = 64
MIB = 2**20

try:
    import cupy
except ImportError as error:
    print(f"CuPy cannot be imported: {error}", file=sys.stderr)
    sys.exit(77)


def main() -> int:
    """Multiply with cuBLAS, then allocate until the limit refuses, then multiply again."""
    try:
        free, total = cupy.cuda.runtime.memGetInfo()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        print(f"CuPy finds no device: {error}", file=sys.stderr)
        return 77
    square = cupy.ones((1024, 1024), dtype=cupy.float32)
    cupy.cuda.Device().synchronize()
    before = cupy.cuda.runtime.memGetInfo()[0]
    right = bool((square @ square)[0, 0] == 1024)
    print(f"total_mib\t{total // MIB}\nfree_mib\t{free // MIB}")
    print(f"cublas_mib\t{(before - cupy.cuda.runtime.memGetInfo()[0]) / MIB:.1f}")
    held, refused = [], "nothing"
    try:
        while len(held) * CHUNK_MIB * MIB <= total:
            held.append(cupy.cuda.alloc(CHUNK_MIB * MIB))
    except cupy.cuda.memory.OutOfMemoryError as error:
        refused = type(error).__name__
    print(f"given_mib\t{len(held) * CHUNK_MIB}\nrefused_by\t{refused}")
    del held[-2:]
    right = right and bool((square @ square)[1, 1] == 1024)
    print(f"product\t{'right' if right else 'wrong'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
