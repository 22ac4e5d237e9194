"""What befalls a driver, where, and what it tells of it through Redis before and after."""

import json
import os
import signal
from dataclasses import asdict, dataclass
from enum import StrEnum

import redis

from scalable.domain.operations import Phase
from scalable.services.driver import Moment

EVENTS = "faults:events"
WAIT_SECONDS = 120


class Blow(StrEnum):
    """What happens to the process of a driver."""

    KILL = "kill"
    STOP = "stop"

    def fall(self) -> None:
        """Let it happen to this process."""
        os.kill(os.getpid(), signal.SIGKILL if self is Blow.KILL else signal.SIGSTOP)


@dataclass(frozen=True, slots=True)
class Strike:
    """A blow at one moment of one phase, written into the reason of an operation."""

    blow: Blow
    phase: Phase
    moment: Moment

    def __str__(self) -> str:
        return f"{self.blow} {self.phase} {self.moment}"

    @classmethod
    def parse(cls, reason: str) -> "Strike | None":
        """Read a strike from a reason, or give None for an ordinary one."""
        if len(parts := reason.split()) != 3:
            return None
        return cls(Blow(parts[0]), Phase(parts[1]), Moment(parts[2]))


@dataclass(frozen=True, slots=True)
class Event:
    """A driver's last words before a blow (`struck`), or what it says at its end (`ended`)."""

    name: str
    operation_id: str
    pid: int


def tell(client: "redis.Redis", event: Event) -> None:
    """Put an event where the test waits for it."""
    client.rpush(EVENTS, json.dumps(asdict(event)))


def hear(client: "redis.Redis", name: str) -> Event:
    """Wait for the next event of this name, passing over others."""
    while found := client.blpop([EVENTS], timeout=WAIT_SECONDS):
        event = Event(**json.loads(found[1]))
        if event.name == name:
            return event
    raise TimeoutError(f"no driver said {name!r}")
