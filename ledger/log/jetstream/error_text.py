"""Errors of the operating system in words: no numbers, the address or file, and why."""

import errno
import os
import re
from typing import Final

_NUMBER: Final = re.compile(r"\[Errno -?\d+\] ")
_CONNECT: Final = re.compile(r"Connect call failed \('([^']+)', (\d+)(?:, \d+, \d+)?\)")
_SOURCE: Final = re.compile(r" \(_[a-z]+\.c:\d+\)")


def plainly(error: BaseException) -> str:
    """Return what an error says, without the numbers and addresses of its implementation."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {_NUMBER.sub('', error.strerror)}"
    number = (error.errno or 0) if isinstance(error, OSError) else 0
    refused = os.strerror(number if number > 0 else errno.ECONNREFUSED)
    text = _CONNECT.sub(rf"\1:\2: {refused}", str(error) or type(error).__name__)
    return tidied(text)


def tidied(text: str) -> str:
    """Return a message without numbers of errors and places in libraries."""
    return _SOURCE.sub("", _NUMBER.sub("", text))
