"""How often a caller may ask this node: a bucket of turns for each, which fills up again by the second."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address, ip_network

from django.conf import settings

from scalable.domain.errors import TooManyRequests

BURST_SECONDS = 2.0
CALLERS_MAX = 10_000
IPV6_HOST_PREFIX = 64
"""Bits of an IPv6 address that are not its holder's to choose: one machine has all addresses behind them."""


def counted_address(address: str) -> str:
    """Give what attempts from an address are counted by: the address, of IPv6 its network of 64 bits."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ip_network((parsed.packed, IPV6_HOST_PREFIX), strict=False))


@dataclass(slots=True)
class _Bucket:
    turns: float
    filled_at: float


class Rates:
    """The buckets of a node, those of the callers seen last; a new caller begins with a full one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, caller: str) -> None:
        """Take a turn; raises TooManyRequests when none is left. A rate of 0 lets everybody pass."""
        per_second = settings.SCALABLE_REQUESTS_PER_SECOND
        if per_second <= 0:
            return
        with self._lock:
            missing = self._take(caller, per_second)
        if missing > 0:
            raise TooManyRequests(limit=round(per_second), retry_after_seconds=missing / per_second)

    def _take(self, caller: str, per_second: float) -> float:
        """Take a turn and give 0, or leave it and give how much of one is missing."""
        now, most = self._clock(), max(1.0, per_second * BURST_SECONDS)
        bucket = self._buckets.setdefault(caller, _Bucket(most, now))
        self._buckets.move_to_end(caller)
        if len(self._buckets) > CALLERS_MAX:
            self._buckets.popitem(last=False)
        bucket.turns = min(most, bucket.turns + (now - bucket.filled_at) * per_second)
        bucket.filled_at = now
        if bucket.turns < 1:
            return 1 - bucket.turns
        bucket.turns -= 1
        return 0


rates = Rates()
