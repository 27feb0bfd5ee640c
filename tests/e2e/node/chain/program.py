"""A user's program: it uses CUDA's driver and has no limits of its own. One command per line.

`take MIB`, `fill` (to the last MiB, in small steps), `free`, `info`; each answers a line of JSON.
Everything is called as other programs in Python do, by ctypes.
"""

import ctypes
import json
import sys

STEP_MIB = 16
OUT_OF_MEMORY = 2
MIB = 1024**2

cuda = ctypes.CDLL("libcuda.so.1")
held: list[tuple[ctypes.c_uint64, int]] = []


def call(name: str, *arguments: object) -> int:
    """Call the driver and return its status."""
    return int(getattr(cuda, name)(*arguments))


def must(name: str, *arguments: object) -> None:
    """Call the driver, which has to succeed."""
    status = call(name, *arguments)
    if status:
        sys.exit(f"{name} answered {status}")


def take(mib: int) -> int:
    """Allocate so much and return the driver's status."""
    pointer = ctypes.c_uint64()
    status = call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(mib * MIB))
    if status == 0:
        held.append((pointer, mib))
    return status


def fill() -> int:
    """Allocate until the driver refuses, at the end MiB by MiB, and return its last status."""
    while (status := take(STEP_MIB)) == 0:
        pass
    while (status := take(1)) == 0:
        pass
    return status


def free() -> int:
    """Free everything."""
    while held:
        must("cuMemFree_v2", held.pop()[0])
    return 0


def info() -> dict[str, int]:
    """Return the driver's values of the device's memory, in MiB, and the held amount."""
    left, total = ctypes.c_size_t(), ctypes.c_size_t()
    must("cuMemGetInfo_v2", ctypes.byref(left), ctypes.byref(total))
    return {
        "held": sum(mib for _, mib in held),
        "free": left.value // MIB,
        "total": total.value // MIB,
    }


def main() -> None:
    """Make a context, print so, and execute commands until the input ends."""
    context, device = ctypes.c_void_p(), ctypes.c_int()
    must("cuInit", 0)
    must("cuDeviceGet", ctypes.byref(device), 0)
    must("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    must("cuCtxSetCurrent", context)
    print(json.dumps({"status": 0, **info()}), flush=True)
    for line in sys.stdin:
        word, *amount = line.split()
        does = {"take": take, "fill": fill, "free": free, "info": lambda: 0}[word]
        status = does(*(int(text) for text in amount))  # type: ignore[operator]
        print(json.dumps({"status": status, **info()}), flush=True)


if __name__ == "__main__":
    main()
