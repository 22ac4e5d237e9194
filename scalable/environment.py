"""Reads settings from the environment; one that cannot be read ends the process, and the error names it.

A secret's value is never part of the error.
"""

import difflib
import ipaddress
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import SplitResult, urlsplit

from cryptography.hazmat.primitives.serialization import load_pem_public_key
from django.core.exceptions import ImproperlyConfigured

FLAGS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}
# Later moments and longer times are beyond calendars, databases and timers somewhere.
MOST_SECONDS = 100 * 366 * 86_400
MOST_WHOLE = 2**31 - 1
PREFIX = "SCALABLE_"
OF_SERVICES = re.compile(r"_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?)$")
"""Ends of names that Kubernetes gives each container for each service, as SCALABLE_TOPICS_SERVICE_HOST."""
READ_BY_PROGRAMS = frozenset(
    {
        "SCALABLE_SYSTEM_TOKEN_FILE",  # the load report
        *("SCALABLE_URL", "SCALABLE_TOKEN", "SCALABLE_TOKEN_FILE", "SCALABLE_CONFIG"),  # the command line
    }
)
"""Settings that are read by none who asks here."""
_asked: set[str] = set()
T = TypeVar("T")


def text(name: str, default: str = "") -> str:
    """Give a setting as it stands there; one that is empty counts as absent."""
    _asked.add(name)
    return os.environ.get(name) or default


def flag(name: str, default: bool) -> bool:
    """Read `true` or `false`. Raises ImproperlyConfigured."""
    value = text(name, str(default)).strip().lower()
    if value not in FLAGS:
        raise _unreadable(name, "it is neither true nor false", value)
    return FLAGS[value]


def number(name: str, default: float, *, least: float = 0) -> float:
    """Read a number from `least` to a hundred years in seconds. Raises ImproperlyConfigured."""
    value = _read(name, float, default, "it is no number")
    if not (math.isfinite(value) and least <= value <= MOST_SECONDS):
        raise _unreadable(name, f"it is not a number from {least:g} to {MOST_SECONDS}", text(name))
    return value


def whole(name: str, default: int, *, least: int = 0, most: int = MOST_WHOLE) -> int:
    """Read a whole number from `least` to `most`. Raises ImproperlyConfigured."""
    value = _read(name, int, default, "it is no whole number")
    if not least <= value <= most:
        raise _unreadable(name, f"it is not a whole number from {least} to {most}", text(name))
    return value


def choice(name: str, default: str, known: Sequence[str]) -> str:
    """Read one of the known words, in capitals or not. Raises ImproperlyConfigured."""
    value = text(name, default).strip()
    for each in known:
        if each.lower() == value.lower():
            return each
    raise _unreadable(name, f"it is none of {', '.join(known)}", value)


def names(name: str, default: str) -> list[str]:
    """Read a list with commas."""
    return [part.strip() for part in text(name, default).split(",") if part.strip()]


def networks(name: str, default: str) -> list[str]:
    """Read a list of IP addresses and networks, or `*` alone. Raises ImproperlyConfigured."""
    found = names(name, default)
    if found == ["*"]:
        return found
    for each in found:
        try:
            ipaddress.ip_network(each)
        except ValueError as error:
            raise _unreadable(
                name, f"it lists what is no address such as 10.1.0.7 or 10.1.0.0/16: {error}", text(name)
            ) from None
    return found


def origins(name: str) -> list[str]:
    """Read a list of addresses of sites. Raises ImproperlyConfigured."""
    found = names(name, "")
    for each in found:
        check_site(name, each)
    return found


def site(name: str, default: str) -> str:
    """Read an address of `http` or `https`, with a host and perhaps a port. Raises ImproperlyConfigured."""
    address = text(name, default).rstrip("/")
    check_site(name, address)
    return address


def server(name: str, default: str, schemes: Sequence[str]) -> str:
    """Read the address of a server, which may hold its password. Raises ImproperlyConfigured."""
    address = text(name, default)
    parts = _split(address)
    if not address or (parts is not None and parts.scheme in schemes):
        return address
    raise ImproperlyConfigured(f"{name} cannot be read: it is no address that begins with {schemes[0]}://")


def secret(name: str) -> str:
    """Read a secret, or the file of `<name>_FILE`, which is nobody else's. Raises ImproperlyConfigured."""
    path, given = text(f"{name}_FILE"), text(name)
    if given or not path:
        return given
    content = _content(f"{name}_FILE", path)
    if Path(path).stat().st_mode & 0o077:
        raise ImproperlyConfigured(f"{name}_FILE={path} can be read by others: chmod 600 it")
    if not content:
        raise ImproperlyConfigured(f"{name}_FILE={path} is empty")
    return content


def public_key(name: str) -> str:
    """Read a public key (PEM), or the file that `<name>_FILE` names. Raises ImproperlyConfigured."""
    path, given = text(f"{name}_FILE"), text(name)
    if not path and not given:
        return ""
    source = f"{name}_FILE={path}" if path else name
    content = _content(f"{name}_FILE", path) if path else given
    try:
        load_pem_public_key(content.encode())
    except ValueError:
        raise ImproperlyConfigured(f"{source} cannot be read: it is no public key in PEM") from None
    return content


def file(name: str) -> str:
    """Read the path of a file that is there. Raises ImproperlyConfigured."""
    path = text(name)
    if path:
        _content(name, path)
    return path


def ignored(environment: Iterable[str], others: Mapping[str, Iterable[str]]) -> list[str]:
    """Tell of names like a setting that are none, after all settings were read; the values are not told.

    `others` are the settings that are not read here, by how their names begin.
    """
    known = _asked | READ_BY_PROGRAMS | {name for names in others.values() for name in names}
    return [
        _sentence(name, _nearest(name, prefix, known))
        for name in sorted(environment)
        for prefix in (PREFIX, *others)
        if _begins(name, prefix) and name not in known and not OF_SERVICES.search(name)
    ]


def _begins(name: str, prefix: str) -> bool:
    return name.lower().startswith(prefix.lower())


def _nearest(name: str, prefix: str, known: Iterable[str]) -> str:
    """Give the setting that is most like a name, not counting how all begin; empty when none is."""
    settings = {each[len(prefix) :].lower(): each for each in known if _begins(each, prefix)}
    return "".join(
        settings[end] for end in difflib.get_close_matches(name[len(prefix) :].lower(), settings, n=1)
    )


def _sentence(name: str, near: str) -> str:
    hint = f"; was {near} meant?" if near else "; docs/settings.md has all settings"
    return f"{name} is set, is no setting, and is ignored{hint}"


def _read(name: str, convert: Callable[[str], T], default: T, problem: str) -> T:
    try:
        return convert(text(name)) if text(name) else default
    except ValueError:
        raise _unreadable(name, problem, text(name)) from None


def _content(name: str, path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ImproperlyConfigured(f"{name}={path} cannot be read: {problem}") from None


def check_site(name: str, address: str) -> None:
    parts = _split(address)
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise _unreadable(name, "it is no address like https://topics.example.com:8443", address)
    if parts.path or parts.query or parts.fragment or parts.username is not None:
        raise _unreadable(name, "it has more than scheme, host and port", address)


def _split(address: str) -> SplitResult | None:
    """Take an address apart; None when it cannot be one."""
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _unreadable(name: str, problem: str, value: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{name}={value} cannot be read: {problem}")
