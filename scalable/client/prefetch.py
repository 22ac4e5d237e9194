"""How many messages of one segment may wait in memory."""

from __future__ import annotations


class Prefetch:
    """The same number for each segment."""

    def __init__(self, messages: int) -> None:
        """Take the number; raises ValueError when it is not at least 1."""
        if messages < 1:
            raise ValueError("prefetch_messages is not at least 1")
        self._messages = messages

    @classmethod
    def of(cls, given: int | Prefetch) -> Prefetch:
        """Give what an option names; raises ValueError."""
        return given if isinstance(given, Prefetch) else cls(given)

    @property
    def per_segment(self) -> int:
        """Give how many messages of one segment may wait now."""
        return self._messages

    def within(self, permits: int) -> int:
        """Give how many may wait now where a node's welcome tells what it permits at most; 0: no limit."""
        return min(self.per_segment, permits or self.per_segment)


class SharedPrefetch(Prefetch):
    """An even share of what the segments of several consumers may hold together, at least one each."""

    def __init__(self, messages: int) -> None:
        super().__init__(messages)
        self._segments: dict[object, int] = {}
        self._total = 0

    @property
    def per_segment(self) -> int:
        """Give the share of one segment now."""
        return max(1, self._messages // max(1, self._total))

    def note(self, consumer: object, segments: int) -> None:
        """Note how many segments a consumer reads now; none when it is closed."""
        self._total += segments - self._segments.pop(consumer, 0)
        if segments:
            self._segments[consumer] = segments


def permits_due(prefetch: int, outstanding: int) -> int:
    """Give the permits to grant now, so that `prefetch` may wait; 0 until half of these are used up."""
    permits = prefetch - outstanding
    return permits if permits > 0 and permits * 2 >= prefetch else 0
