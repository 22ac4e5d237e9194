"""What is set for a topic, or for a namespace and so for its topics."""

from __future__ import annotations

import click

from scalable.cli.values import PLACE
from scalable.domain.names import NamespaceName, TopicName

Place = TopicName | NamespaceName

place_argument = click.argument("place", type=PLACE, metavar="TOPIC|NAMESPACE")


def named(place: Place) -> dict[str, str]:
    """Name the place in an answer for scripts."""
    return {"topic" if isinstance(place, TopicName) else "namespace": str(place)}
