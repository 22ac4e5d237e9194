"""What a process knows of who may do what, so that a check costs no statement.

Rows are the truth. A notice, or a change made in this process, lets the rules be read again; without any they
are compared with the stamp of the last change every few seconds, so that a lost notice costs no more.
"""

import threading
import time
from copy import copy

from django.conf import settings
from django.db import Error

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
        self._failures = 0
        self._failure = Error()

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
        return self.fresh or self._in_turn(fresh_will_do=True)

    def refresh(self) -> Rules:
        """Compare with the stamp now, and read again if it moved; raises what the database raises."""
        return self._in_turn(fresh_will_do=False)

    def outdate(self) -> None:
        """Compare with the stamp before the next check, because something may have changed."""
        self._changes += 1

    def _in_turn(self, *, fresh_will_do: bool) -> Rules:
        """Read when it is this thread's turn; what fails meanwhile has failed for all that wait.

        Else each would wait for a database that is away as long as all those before it together.
        """
        failures = self._failures
        with self._lock:
            if fresh_will_do and (fresh := self.fresh):
                return fresh
            if self._failures != failures:
                raise copy(self._failure)
            try:
                return self._refresh()
            except Error as error:
                self._failures, self._failure = self._failures + 1, copy(error)
                raise

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
