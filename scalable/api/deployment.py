"""What `manage.py check` asks beside Django's own questions, some with `--deploy` alone."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage
from django.core.checks import Warning as CheckWarning

SHORTEST_SECRET_BYTES = 32


def check_secrets(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Warn when a secret was not given: each process would make one of its own, which no other accepts."""
    names = {
        "SCALABLE_SECRET_KEY": settings.SCALABLE_SECRET_KEY_GIVEN,
        "SCALABLE_TOKEN_SECRET": settings.SCALABLE_TOKEN_SECRET_GIVEN,
    }
    return [
        CheckWarning(
            f"{name} is not set: every process makes one of its own.",
            hint=f"Set it, or {name}_FILE, to the same for all processes.",
            id=f"scalable.W00{number}",
        )
        for number, (name, given) in enumerate(names.items(), start=1)
        if not given
    ]


def check_lengths(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Warn of a secret that can be guessed from a token (RFC 7518, section 3.2)."""
    if len(settings.SCALABLE_TOKEN_SECRET.encode()) >= SHORTEST_SECRET_BYTES:
        return []
    said = f"SCALABLE_TOKEN_SECRET has fewer than {SHORTEST_SECRET_BYTES} bytes: a token gives it away."
    return [CheckWarning(said, hint="Take a random one: `openssl rand -hex 32`.", id="scalable.W005")]


def check_encryption(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Warn when tokens and cookies would travel unencrypted."""
    if settings.SCALABLE_NODE_URL.startswith("https:"):
        return []
    hint = "Give the node a certificate, or put a proxy with one in front and name its address."
    return [CheckWarning("SCALABLE_NODE_URL is not an https address.", hint=hint, id="scalable.W003")]


def check_names(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Warn of names in the environment that are no setting: a slip of the pen may leave a door open."""
    hint = "Mend the name, or remove it."
    return [CheckWarning(said, hint=hint, id="scalable.W004") for said in settings.SCALABLE_IGNORED_NAMES]
