"""Leases: who may act on something alone, and how a holder that was overtaken is fenced off.

A token rises with every takeover. The fence is token equality on the locked row; expiry only permits a
takeover, so that a slow holder may still finish what nobody took from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from scalable.domain.errors import LeaseLost


@dataclass(frozen=True, slots=True)
class Lease:
    """The present lease on something; without a holder it was given back, and its token still counts."""

    holder: str | None = None
    token: int = 0
    expires_at_ms: int = 0

    def taken_by(self, holder: str, *, now_ms: int, duration_ms: int) -> Lease:
        """Give the lease to a holder under a new token; ask `may_take_over` first."""
        return Lease(holder, self.token + 1, now_ms + duration_ms)

    def renewed(self, token: int, *, resource: str, now_ms: int, duration_ms: int) -> Lease:
        """Extend the lease for whoever has its token; raises LeaseLost."""
        self.check(token, resource=resource)
        return Lease(self.holder, self.token, now_ms + duration_ms)

    def given_back(self, token: int, *, resource: str) -> Lease:
        """End the lease early, so that anyone may take it; raises LeaseLost."""
        self.check(token, resource=resource)
        return Lease(None, self.token, 0)

    def check(self, token: int, *, resource: str) -> None:
        """Raise LeaseLost unless the token is the present one and has a holder; the time plays no part."""
        if token != self.token or self.holder is None:
            raise LeaseLost(resource=resource, token=token)


def may_take_over(lease: Lease | None, now_ms: int) -> bool:
    """Tell whether the lease is free or has run out."""
    return lease is None or lease.holder is None or now_ms >= lease.expires_at_ms


def is_alive(heartbeat_at_ms: int, *, now_ms: int, timeout_ms: int) -> bool:
    """Tell whether a node's last heartbeat is recent enough; with a dead node all its leadership is free."""
    return now_ms - heartbeat_at_ms < timeout_ms
