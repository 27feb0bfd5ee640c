"""Run a program that ends with its parent, even when the parent is killed.

Started as `python -I parent_death.py exec|watch PARENT PROGRAM ARGUMENT…`; imports nothing of
gpuledger.

`exec` (Linux): ask the kernel for SIGTERM when the parent ends, then become the program. The
kernel ties this to the *thread* that started this process, so that one has to live as long as
the program should: start it from the main thread's event loop.
`watch` (elsewhere): start the program and wait for the end of standard input, a pipe whose other
end only the parent holds; then end the program.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from typing import NoReturn

PR_SET_PDEATHSIG = 1
"""From <sys/prctl.h>."""

PARENT_GONE = 3
"""Exit status when the parent ended before the program could be started."""


def become(parent: int, command: list[str]) -> NoReturn:
    """Replace this process by the program, unless the parent is gone already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    # The parent may have ended before the signal was requested.
    if os.getppid() != parent:
        raise SystemExit(PARENT_GONE)
    os.execv(command[0], command)


def watch(command: list[str]) -> int:
    """Run the program until it ends or standard input does. Returns its exit status."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, close_fds=False)

    def forward(signum: int, _frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signum)

    signal.signal(signal.SIGTERM, forward)
    threading.Thread(target=_end_with_input, args=(child,), daemon=True).start()
    return child.wait()


def _end_with_input(child: subprocess.Popen[bytes]) -> None:
    while sys.stdin.buffer.read(1):
        pass
    child.terminate()


def main(arguments: list[str]) -> int:
    """Run as described at the top of the module."""
    mode, parent, *command = arguments
    if mode == "exec":
        become(int(parent), command)
    return watch(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
