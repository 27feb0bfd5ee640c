"""Benchmarks of the product, each with a goal. `python -m tests.bench` runs them.

Machines are noisy: where possible a value is compared with a baseline that the same run measured.
Each benchmark has a process of its own.
"""

import sys
from pathlib import Path

# The tests' helpers have one name, `support`, everywhere. Pytest finds them by its `pythonpath`.
sys.path.append(str(Path(__file__).parents[1]))
