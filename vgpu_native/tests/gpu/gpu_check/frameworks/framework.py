"""PyTorch or CuPy under a limit: prints the lines of the C programs, and waits at each step.

`python framework.py torch` or `python framework.py cupy`. The status is 77 if the framework or a
device is missing.
"""

import importlib
import sys

MIB = 2**20
CHUNK_MIB = 64
ABSENT = 77


class Torch:
    """PyTorch."""

    def __init__(self, torch):
        """Raise RuntimeError if there is no device."""
        if not torch.cuda.is_available():
            raise RuntimeError("is_available() is false")
        self.torch, self.refused = torch, torch.cuda.OutOfMemoryError
        self.info, self.wait = torch.cuda.mem_get_info, torch.cuda.synchronize

    def ones(self):
        """Return a matrix of ones."""
        return self.torch.ones(1024, 1024, device="cuda")

    def allocate(self, size):
        """Return memory of the framework's own pool."""
        return self.torch.empty(size, dtype=self.torch.uint8, device="cuda")


class Cupy:
    """CuPy."""

    def __init__(self, cupy):
        """Raise RuntimeError if there is no device."""
        self.info = cupy.cuda.runtime.memGetInfo
        self.info()
        self.cupy, self.refused = cupy, cupy.cuda.memory.OutOfMemoryError
        self.wait, self.allocate = cupy.cuda.Device().synchronize, cupy.cuda.alloc

    def ones(self):
        """Return a matrix of ones."""
        return self.cupy.ones((1024, 1024), dtype=self.cupy.float32)


KINDS = {"torch": Torch, "cupy": Cupy}


def step(name, free_bytes, total):
    """Print a step with the bytes in use, and wait until the script has read NVML."""
    print(f"step\t{name}\t{total - free_bytes}\t{total}\t0\tCUDA_SUCCESS", flush=True)
    if not sys.stdin.readline():
        sys.exit(1)


def opened(name):
    """Return the framework. Exits if it is missing, or a device."""
    try:
        return KINDS[name](importlib.import_module(name))
    except ImportError as error:
        print(f"{name} cannot be imported: {error}", file=sys.stderr)
    except RuntimeError as error:
        print(f"{name} finds no device: {error}", file=sys.stderr)
    return sys.exit(ABSENT)


def main(name):
    """Multiply with cuBLAS, then allocate until the limit refuses, then multiply again."""
    framework = opened(name)
    _, total = framework.info()
    square = framework.ones()
    framework.wait()
    step("context", *framework.info())
    right = bool((square @ square)[0, 0] == 1024)
    step("product", *framework.info())
    held, refused = [], "nothing"
    try:
        while len(held) * CHUNK_MIB * MIB <= total:
            held.append(framework.allocate(CHUNK_MIB * MIB))
    except framework.refused as error:
        refused = type(error).__name__
    print(f"given_mib\t{len(held) * CHUNK_MIB}\nrefused_by\t{refused}")
    step("full", *framework.info())
    del held[-2:]
    right = right and bool((square @ square)[1, 1] == 1024)
    print(f"product\t{'right' if right else 'wrong'}")


if __name__ == "__main__":
    main(sys.argv[1])
