"""Every process of an instance is killed, one by one and all at once; what was acknowledged stays."""

from __future__ import annotations

import signal
import threading
from functools import partial
from pathlib import Path

import pytest

from scalable.client import Admin, SyncProducer, SyncStreamConsumer
from tests.launch.children import kill_hard, wait_until
from tests.launch.test_instance import Launched, launched, serves

__all__ = ["launched"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]
TOPIC = "topic://public/default/restarted"


class Sender:
    """Sends one message after the other until told to stop; `acknowledged` are those that are durable."""

    def __init__(self, urls: list[str], token: str) -> None:
        self.acknowledged: list[bytes] = []
        self._urls, self._token = urls, token
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        with SyncProducer(self._urls, TOPIC, self._token, name="sender") as producer:
            while not self._stop.is_set():
                value = str(len(self.acknowledged)).encode()
                producer.send(f"key-{len(self.acknowledged) % 5}", value)
                self.acknowledged.append(value)

    def sends_on(self) -> None:
        """Wait until something more is acknowledged."""
        before = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) > before, seconds=90)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(90)
        assert not self._thread.is_alive()


def token_of(data: Path) -> str:
    return (data / "admin-token").read_text().strip()


def kill_and_wait(instance: Launched, *words: str) -> None:
    before = instance.child(*words)
    kill_hard(before.pid)
    wait_until(partial(instance.replaced, before, *words), seconds=60)


def test_rolling_and_full_restarts_lose_nothing_and_need_no_repair(launched: Launched) -> None:
    launched.start("--nodes", "2")
    urls, token = launched.urls, token_of(launched.data)
    with Admin(urls, token) as admin:
        admin.create_topic(TOPIC, initial_segments=2)
    sender = Sender(urls, token)
    sender.sends_on()
    ports = [url.rpartition(":")[2] for url in urls]
    for words in (
        *(("uvicorn", port) for port in ports),
        ("celery", "worker"),
        ("celery", "beat"),
        ("valkey",),
        ("postgres", "-D"),
    ):
        kill_and_wait(launched, *words)
        sender.sends_on()
    assert launched.signal(signal.SIGTERM) == 0
    launched.start("--nodes", "2")
    sender.sends_on()
    launched.signal(signal.SIGKILL)
    launched.start("--nodes", "2")
    assert launched.urls == urls
    assert all(serves(url) for url in urls)
    sender.sends_on()
    sender.stop()
    left = set(sender.acknowledged)
    with SyncStreamConsumer(urls, TOPIC, "afterwards", token) as consumer:
        while left:
            message = consumer.receive(timeout_seconds=60)
            consumer.acknowledge(message)
            left.discard(message.value)
