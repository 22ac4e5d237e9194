"""Looks at the assignments of the soak's subscriptions by REST, again and again."""

import asyncio
from typing import Any

import httpx

from launch.soak.plan import TOPIC, Role
from launch.soak.rules import Held, Rules, Sighting
from scalable.client import Admin, ConnectionLost
from scalable.domain.errors import ScalableError

LOOK_SECONDS = 0.4
GROUPS = (Role.STREAM, Role.CHECKPOINT)


class Inspector:
    """Applies the rules to every assignment that it gets to see."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self.rules = {group: Rules() for group in GROUPS}

    @property
    def violations(self) -> list[str]:
        """Everything that was wrong so far."""
        return [f"{group}: {what}" for group, rules in self.rules.items() for what in rules.violations]

    @property
    def sightings(self) -> int:
        """How often an assignment was seen."""
        return sum(rules.sightings for rules in self.rules.values())

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for group, rules in self.rules.items():
                sighting = await asyncio.to_thread(self._see, group)
                if sighting is not None:
                    rules.look(sighting)

    def _see(self, group: Role) -> Sighting | None:
        """Read an assignment, then what is left; None while nobody answers or there is no such group yet."""
        try:
            topic = self._admin.get_topic(TOPIC)
            assigned = self._admin.assignments(TOPIC, group)
            left = self._admin.subscription(TOPIC, group)
        except (ScalableError, ConnectionLost, httpx.HTTPError):
            return None
        return sighting_of(topic, assigned, left)


def sighting_of(topic: dict[str, Any], assigned: dict[str, Any], left: dict[str, Any]) -> Sighting:
    """Put together what three answers tell; the layout is the oldest, what is left the newest."""
    return Sighting(
        incarnation=topic["incarnation"],
        term=assigned["leader"]["term"],
        generation=assigned["generation"],
        consumers=tuple(sorted(one["consumerName"] for one in assigned["consumers"])),
        held=tuple(
            Held(
                unit=(unit["segmentId"], unit["bucket"]),
                owner=one["consumerName"],
                next_owner=unit["nextOwner"],
                generation=unit["generation"],
            )
            for one in assigned["consumers"]
            for unit in one["units"]
        ),
        parents={int(key): tuple(each["parentIds"]) for key, each in topic["segments"].items()},
        # A CHECKPOINT group has drained a segment when a member says so; its backlog is what the last commit
        # holds, which may be more.
        backlogs={
            int(key): each["msgBacklog"]
            for key, each in left["segments"].items()
            if left["type"] != "CHECKPOINT"
        },
        waits={int(key): tuple(ancestors) for key, ancestors in assigned["waitsFor"].items()},
    )
