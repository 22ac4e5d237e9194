"""A data plane outside the metadata database whose caller dies in the middle of a move."""

from collections.abc import Callable
from typing import Any

from scalable.segments.memory import MemorySegments

WRITES = ("seek", "skip", "skip_to", "own_all")


class Crash(BaseException):
    """The end of a runner that leaves no time for anything."""


class MortalSegments(MemorySegments):
    """A data plane whose caller ends before or after the writes that are `left`: from then on all fail."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.after = False

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return self._mortal(found) if name in WRITES else found

    def _mortal(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any, **kwargs: Any) -> Any:
            if self.left is None:
                return act(*args, **kwargs)
            self.left -= 1
            if self.left == 0 and self.after:
                act(*args, **kwargs)
            if self.left <= 0:
                raise Crash
            return act(*args, **kwargs)

        return write
