"""What an embedded server is to its users: an address, and how to run it."""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from launch.process import ProcessSpec


@dataclass(frozen=True)
class EmbeddedService:
    """A server that can be started by its `spec` and is then reached at `url` (which holds its password)."""

    url: str
    spec: ProcessSpec


def private_file(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    beside.replace(path)


def kept_secret(path: Path) -> str:
    """Return the secret kept in `path`, made at the first call."""
    if not path.exists():
        private_file(path, secrets.token_urlsafe(48))  # Django warns of less than 50 characters
    return path.read_text()
