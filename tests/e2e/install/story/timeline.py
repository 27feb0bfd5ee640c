"""The steps of a story with their times, printed as they happen."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Timeline:
    """Prints each step with the seconds since the beginning and those that the step took."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        print(flush=True)
        self.seconds: dict[str, float] = {}
        """The duration of each step that has ended."""

    @property
    def now(self) -> float:
        """Return the seconds since the beginning."""
        return time.monotonic() - self._begun

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Time a step, and print it when it ends; a step that fails is printed as such."""
        begun = self.now
        try:
            yield
        except BaseException:
            self._print(f"FAILED  {text}", begun)
            raise
        self.seconds[text] = self.now - begun
        self._print(f"ok      {text}", begun)

    def line(self, text: str) -> None:
        """Print a fact, such as a count, below the step that it belongs to."""
        print(f"{'':26}{text}", flush=True)

    def _print(self, text: str, begun: float) -> None:
        print(f"{self.now:8.1f} s  {self.now - begun:6.1f} s  {text}", flush=True)
