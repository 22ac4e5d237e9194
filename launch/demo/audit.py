"""What the demo checks: every event exactly once, and each key's events in order."""

from launch.demo.events import Event


class Audit:
    """Keeps the books of one run; events are known by their running numbers."""

    def __init__(self, events: int) -> None:
        self._seen = bytearray(events)
        self._last: dict[str, int] = {}
        self._disordered: set[str] = set()
        self.produced = 0
        self.consumed = 0
        self.duplicated = 0
        self.failures: list[str] = []

    def note_produced(self, event: Event) -> None:
        """Note that an event is durable."""
        self.produced += 1

    def note_consumed(self, key: str | None, number: int) -> None:
        """Note a delivery."""
        self.consumed += 1
        if self._seen[number]:
            self.duplicated += 1
        self._seen[number] = 1
        if key is None:
            return
        if number < self._last.get(key, -1):
            self._disordered.add(key)
        self._last[key] = number

    @property
    def distinct(self) -> int:
        """Return how many different events arrived."""
        return self.consumed - self.duplicated

    @property
    def lost(self) -> int:
        """Return how many events never arrived."""
        return len(self._seen) - self.distinct

    @property
    def out_of_order(self) -> int:
        """Return how many keys had an event behind a later one."""
        return len(self._disordered)
