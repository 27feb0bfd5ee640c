"""`gpuledger` with a writer whose stopwatch is the processor time of its thread.

`gpuledger_loop_blocked_seconds` then has no wait for a core, and depends less on other load.
"""

import runpy
import time

from ledger.log.writer.writer import Writer

if __name__ == "__main__":
    defaults = Writer.__init__.__kwdefaults__ or {}
    assert defaults["stopwatch"] is time.perf_counter
    defaults["stopwatch"] = time.thread_time
    runpy.run_module("gpuledger", run_name="__main__", alter_sys=True)
