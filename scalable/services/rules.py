"""What a process knows of who may do what, so that a check costs no statement.

Rows are the truth. A notice, or a change made in this process, lets the rules be read again; without any they
are compared with the stamp of the last change every few seconds, so that a lost notice costs no more.
"""

import threading
import time

from django.conf import settings

from scalable import announce
from scalable.store import access as store
from scalable.store.access import Rules


class RuleCache:
    """The rules as last read; threads share one reading."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Know nothing, as at the start."""
        self._rules = Rules()
        self._read_at: float | None = None
        self._changes = 0
        self._changes_read = -1

    @property
    def fresh(self) -> Rules | None:
        """The rules, unless they have to be read or compared first; never waits."""
        age_limit = settings.SCALABLE_ACCESS_RESYNC_SECONDS
        if self._read_at is None or self._changes_read != self._changes:
            return None
        return self._rules if time.monotonic() - self._read_at <= age_limit else None

    @property
    def latest(self) -> Rules:
        """The rules as last read, however long ago; nothing is granted before the first reading."""
        return self._rules

    def current(self) -> Rules:
        """The rules, read or compared first where that is due; raises what the database raises."""
        return self.fresh or self._refresh_unless_fresh()

    def refresh(self) -> Rules:
        """Compare with the stamp now, and read again if it moved; raises what the database raises."""
        with self._lock:
            return self._refresh()

    def outdate(self) -> None:
        """Compare with the stamp before the next check, because something may have changed."""
        self._changes += 1

    def _refresh_unless_fresh(self) -> Rules:
        with self._lock:
            return self.fresh or self._refresh()

    def _refresh(self) -> Rules:
        changes, begun_at = self._changes, time.monotonic()
        stamp = store.read_stamp()
        if stamp is None or stamp != self._rules.stamp:
            self._rules = store.read_rules()
        self._read_at, self._changes_read = begun_at, changes
        return self._rules


rules = RuleCache()


def changed() -> None:
    """Tell this process now, and all of them after commit, that access changes in this transaction."""
    rules.outdate()
    announce.publish(announce.AccessChanged())


def hear(notice: announce.Notice) -> None:
    """Outdate the rules of this process when a change of access was committed; joined at start-up."""
    if isinstance(notice, announce.AccessChanged):
        rules.outdate()
