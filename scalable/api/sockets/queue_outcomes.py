"""What consumers say of the messages of one segment, gathered for a moment and written together."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from scalable.wire.frames import NegativeAck, QueueAck, Renew

Range = tuple[int, int]


@dataclass(slots=True)
class Outcomes:
    """Acknowledgements, returns and renewals of one segment that wait to be written."""

    acknowledged: dict[int, list[Range]] = field(default_factory=dict)
    """By the incarnation of the cursor."""
    returned: dict[tuple[int, bool], list[Range]] = field(default_factory=dict)
    """By delay (milliseconds), and whether the delivery counts."""
    renewed: list[Range] = field(default_factory=list)
    renewals: list[int] = field(default_factory=list)
    """The renewals that want an answer, by their numbers."""

    def acknowledge(self, frame: QueueAck) -> None:
        """Note messages that were processed."""
        self.acknowledged.setdefault(frame.incarnation, []).extend(frame.ranges)

    def give_back(self, frame: NegativeAck) -> None:
        """Note messages that were not processed."""
        self.returned.setdefault((frame.delay_ms, frame.count_delivery), []).extend(frame.ranges)

    def renew(self, frame: Renew) -> None:
        """Note messages that are still waited with."""
        self.renewed.extend(frame.ranges)
        if frame.request_id:
            self.renewals.append(frame.request_id)


def united(ranges: Iterable[Range]) -> list[Range]:
    """Order ranges and unite those that touch or overlap."""
    found: list[Range] = []
    for first, end in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((first, end))
    return found
