"""A command that reads a service imports neither the log, nor servers, nor all of Kubernetes."""

import subprocess
import sys

SCRIPT = """
import sys
sys.argv = ["gpuledger", "usage", "--server", "https://localhost:1"]
from gpuledger.__main__ import main
try:
    main()
finally:
    print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_a_refused_reader_imports_no_server_and_no_log() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 5, done.stderr
    loaded = set(done.stdout.split())
    assert {"gpuledger", "aiohttp"} <= loaded
    assert not {"kubernetes_asyncio", "nats", "numpy", "extender", "uvicorn"} & loaded
