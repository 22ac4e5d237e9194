"""Where the product is, who asks, and how answers are shown: options over environment over a file."""

from __future__ import annotations

import functools
import os
import stat
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import click

from scalable.cli.output import Output
from scalable.client import Admin
from scalable.client.endpoint import Endpoint

DEFAULT_URL = "http://127.0.0.1:8080"
KNOWN = frozenset({"url", "token", "token_file"})
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Session:
    """One run of the command: `url` may name several nodes, with commas between them."""

    url: str
    token: str
    output: Output
    timeout_seconds: float

    def __post_init__(self) -> None:
        """Refuse an address or a token that cannot be one; raises UsageError."""
        try:
            Endpoint(self.url, self.token)
        except (ValueError, OSError) as error:
            raise click.UsageError(str(error)) from error

    def admin(self) -> Admin:
        """Give a REST client; a context manager."""
        return Admin(self.url, self.token, timeout_seconds=self.timeout_seconds)


def default_config_file() -> Path:
    """Where the file of settings lies unless it is named."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "scalable-topics" / "config.toml"


def read_config(path: Path, *, required: bool) -> dict[str, str]:
    """Read `url`, `token`, `token_file` from a TOML file; raises UsageError."""
    if not path.exists() and not required:
        return {}
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise click.UsageError(f"{path} cannot be read: {error}") from error
    odd = sorted(name for name, value in values.items() if name not in KNOWN or not isinstance(value, str))
    if odd:
        raise click.UsageError(f"{path}: only the texts url, token and token_file are known; not {odd}")
    if "token" in values:
        _refuse_others(path)
    return values


def find_token(token: str | None, token_file: str | None, config: dict[str, str]) -> str:
    """Give the token of options, else of the environment, else of the settings; empty for none.

    Each of them names it or the file that holds it. Raises UsageError.
    """
    if token and token_file:
        raise click.UsageError("give either --token or --token-file")
    environment = os.environ.get("SCALABLE_TOKEN"), os.environ.get("SCALABLE_TOKEN_FILE")
    for given, path in ((token, token_file), environment, (config.get("token"), config.get("token_file"))):
        if given or path:
            return given or _read_token(Path(path or "").expanduser())
    return ""


def _read_token(path: Path) -> str:
    """Read a file that holds a token alone, and that nobody else may read. Raises UsageError."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise click.UsageError(f"the token file {path} cannot be read: {error}") from error
    _refuse_others(path)
    return token


def _refuse_others(path: Path) -> None:
    """Refuse a file with a token in it that others may read, as ssh refuses a key. Raises UsageError."""
    mode = path.stat().st_mode
    if stat.S_ISREG(mode) and mode & 0o077:  # a pipe is whoever made it
        raise click.UsageError(f"{path} holds a token and others may read it; chmod 600 {path}")


def with_admin(command: Callable[Concatenate[Session, Admin, P], T]) -> Callable[P, T]:
    """Make a click callback of a function that begins with the session and a REST client."""

    @click.pass_obj
    @functools.wraps(command)
    def run(session: Session, *args: Any, **options: Any) -> T:
        with session.admin() as admin:
            return command(session, admin, *args, **options)

    return run
