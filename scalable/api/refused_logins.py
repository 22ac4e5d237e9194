"""Notes refused logins in the audit; of the attempts beyond the throttle the first of each window."""

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.signals import user_login_failed

from scalable.domain.errors import TooManyRequests, Unauthenticated
from scalable.services import auditing


def listen() -> None:
    """Note every refused login of this process from now on."""
    user_login_failed.connect(_note, dispatch_uid="scalable_refused_logins")


def note_throttled(name: str) -> None:
    """Note that a login was refused unseen, for there were too many before it."""
    _record(name, TooManyRequests.code)


def _note(*, credentials: Mapping[str, Any], **_: Any) -> None:
    _record(str(credentials.get("username", "")), Unauthenticated.code)


def _record(name: str, outcome: str) -> None:
    shown = "".join(filter(str.isprintable, name))
    auditing.record_refusal(action="login", target=f"users/{shown}", outcome=outcome)
