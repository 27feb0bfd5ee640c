"""A clock that is ahead: Python processes with this environment read a later time of day."""

import os
from pathlib import Path


def shifted(folder: Path, seconds: float) -> str:
    """Return a PYTHONPATH with which a process's `time.time` is ahead by so many seconds.

    The interpreter imports `sitecustomize` before any other module; monotonic clocks stay.
    """
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        f"import time\n_now = time.time\ntime.time = lambda: _now() + {seconds!r}\n"
    )
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))
