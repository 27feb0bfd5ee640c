"""CuPy under a limit: prints tab-separated names and values.

The status is 77 if CuPy or a device is missing.
"""

import sys

from steps import MIB, step

CHUNK_MIB = 64

try:
    import cupy
except ImportError as error:
    print(f"CuPy cannot be imported: {error}", file=sys.stderr)
    sys.exit(77)


def main() -> int:
    """Multiply with cuBLAS, then allocate until the limit refuses, then multiply again."""
    try:
        _, total = cupy.cuda.runtime.memGetInfo()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        print(f"CuPy finds no device: {error}", file=sys.stderr)
        return 77
    square = cupy.ones((1024, 1024), dtype=cupy.float32)
    cupy.cuda.Device().synchronize()
    step("context", *cupy.cuda.runtime.memGetInfo())
    right = bool((square @ square)[0, 0] == 1024)
    step("product", *cupy.cuda.runtime.memGetInfo())
    held, refused = [], "nothing"
    try:
        while len(held) * CHUNK_MIB * MIB <= total:
            held.append(cupy.cuda.alloc(CHUNK_MIB * MIB))
    except cupy.cuda.memory.OutOfMemoryError as error:
        refused = type(error).__name__
    print(f"given_mib\t{len(held) * CHUNK_MIB}\nrefused_by\t{refused}")
    step("full", *cupy.cuda.runtime.memGetInfo())
    del held[-2:]
    right = right and bool((square @ square)[1, 1] == 1024)
    print(f"product\t{'right' if right else 'wrong'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
