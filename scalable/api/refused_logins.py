"""Notes refused logins in the audit; attempts beyond the throttle are refused before this."""

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.signals import user_login_failed

from scalable.domain.errors import Unauthenticated
from scalable.services import auditing


def listen() -> None:
    """Note every refused login of this process from now on."""
    user_login_failed.connect(_note, dispatch_uid="scalable_refused_logins")


def _note(*, credentials: Mapping[str, Any], **_: Any) -> None:
    name = "".join(filter(str.isprintable, str(credentials.get("username", ""))))
    auditing.record_refusal(action="login", target=f"users/{name}", outcome=Unauthenticated.code)
