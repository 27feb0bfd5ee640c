"""Mutator: changes known inputs at random, the same way for the same seed."""

import random
from collections.abc import Callable, Sequence
from typing import Final

SIZE_MAX: Final = 4096
CHANGES_MAX: Final = 4
PIECE_MAX: Final = 32

NUMBERS: Final = tuple(
    number + more
    for number in (0, 16, 255, 256, 4096, 2**15, 2**30, 2**31, 2**32, 2**63, 2**64, 10**30)
    for more in (-1, 0, 1)
)
WORDS: Final = (
    *(str(number).encode() for number in NUMBERS),
    *(b"null", b"true", b"NaN", b"Infinity", b"1e999", b"[[[[[[[[", b'{"":', b"\\ud800", b"\0"),
    *(b",", b":", b";", b"=", b"-", b".", b"\xff", b"\xc3\xa9", b"\xf0\x9f\x92\xa9", b"\n", b"%s"),
)
"""Byte sequences on which readers of text often fail."""


class Mutator:
    """A source of changed inputs."""

    def __init__(self, seed: int, corpus: Sequence[bytes]) -> None:
        """Begin with a corpus of at least one known input."""
        assert corpus, "without a corpus there is nothing to change"
        self.random = random.Random(seed)
        self._corpus = list(corpus)
        self._changes: tuple[Callable[[bytearray], None], ...] = (
            self._flip,
            self._put_byte,
            self._insert_word,
            self._insert_other,
            self._erase,
            self._put_number,
        )

    def next(self) -> bytes:
        """Return another input."""
        data = bytearray(self.random.choice(self._corpus))
        for _ in range(self.random.randint(1, CHANGES_MAX)):
            self.random.choice(self._changes)(data)
        return bytes(data[:SIZE_MAX])

    def _place(self, data: bytearray, less: int = 0) -> int:
        return self.random.randint(0, max(0, len(data) - less))

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self._place(data, 1)] ^= 1 << self.random.randrange(8)

    def _put_byte(self, data: bytearray) -> None:
        if data:
            data[self._place(data, 1)] = self.random.randrange(256)

    def _insert_word(self, data: bytearray) -> None:
        at = self._place(data)
        data[at : at + self.random.randint(0, 4)] = self.random.choice(WORDS)

    def _insert_other(self, data: bytearray) -> None:
        other = self.random.choice(self._corpus)
        at, begin = self._place(data), self.random.randint(0, len(other))
        data[at:at] = other[begin : begin + self.random.randint(1, PIECE_MAX)]

    def _erase(self, data: bytearray) -> None:
        at = self._place(data)
        del data[at : at + self.random.randint(1, PIECE_MAX)]

    def _put_number(self, data: bytearray) -> None:
        width = self.random.choice((1, 2, 4, 8))
        number = self.random.choice(NUMBERS) % 2 ** (8 * width)
        at = self._place(data, width)
        data[at : at + width] = number.to_bytes(width, "little")
