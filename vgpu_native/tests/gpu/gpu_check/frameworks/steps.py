"""The steps of the programs of frameworks: the same lines as those of the C programs."""

import sys

MIB = 2**20


def step(name, free_bytes, total):
    """Print a step with the bytes in use, and wait until the script has read NVML."""
    print(f"step\t{name}\t{total - free_bytes}\t{total}\t0\tCUDA_SUCCESS", flush=True)
    if not sys.stdin.readline():
        sys.exit(1)
