"""The topics of a namespace that a watcher follows: filters, differences, and the hash that names a list.

A list maps the full name of each topic to its incarnation, so that a topic that was deleted and made again is
another one, also where nobody looked in between.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import crc32c

Listed = Mapping[str, int]
"""Full names (`topic://tenant/namespace/name`) with incarnations."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What makes one list of another: first all that is removed, then all that is added."""

    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.removed or self.added)


def difference(before: Listed, after: Listed) -> Difference:
    """What differs between two lists, in order of names; a topic that was made again is removed and added."""
    return Difference(
        removed=tuple(sorted(name for name, life in before.items() if after.get(name) != life)),
        added=tuple(sorted(name for name, life in after.items() if before.get(name) != life)),
    )


def matches(properties: Mapping[str, str], filters: Mapping[str, str]) -> bool:
    """True when a topic has every property of the filters, with exactly that value."""
    return all(properties.get(key) == value for key, value in filters.items())


def hash_of(names: Iterable[str]) -> str:
    """The hash of a list of full names, as Pulsar's TopicList has it.

    CRC-32C over the names in UTF-8, sorted by UTF-16 code units and joined by commas: its bytes in
    little-endian order, as 8 lower-case hex digits.
    """
    ordered = sorted(names, key=_utf16_order)
    return crc32c.crc32c(",".join(ordered).encode()).to_bytes(4, "little").hex()


def _utf16_order(name: str) -> bytes:
    return name.encode("utf-16-be")
