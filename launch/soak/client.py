"""`python -m launch.soak.client`: one producer or consumer of a soak; its journal says what it did."""

import argparse
import asyncio
import logging
import random
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from launch.soak.journal import Did, Journal, JournalReader
from launch.soak.plan import KEYS_PER_PRODUCER, QUEUE_ACK_TIMEOUT_SECONDS, TOPIC, Role
from scalable.client import MessageId, Producer, StreamConsumer
from scalable.client.checkpoint_consumer import CheckpointConsumer
from scalable.client.queue_consumer import QueueConsumer
from scalable.domain.checkpoint import checkpoint_from_json

BATCH_MESSAGES = 200
BATCH_SECONDS = 0.3
START_SECONDS = 60.0
CLOSE_SECONDS = 30.0
M = TypeVar("M")


class Task:
    """What one process is to do, and its journal; `stopping` is set by SIGTERM."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.name: str = options.name
        self.urls: str = options.urls
        self.token: str = options.token_file.read_text().strip()
        self.rate: float = options.rate
        self.before = JournalReader(options.journal).read()
        self.journal = Journal(options.journal)
        self.stopping = asyncio.Event()

    def got(self, message: Any) -> None:
        """Note a delivery."""
        key, _, number = message.value.decode().rpartition(":")
        place = message.message_id.segment_id, message.message_id.offset
        self.journal.got(key, int(number), place)

    async def receive_some(self, receive: Callable[[float], Awaitable[M]]) -> list[M]:
        """Receive messages until there are enough, a moment is over, or the process is to stop."""
        found: list[M] = []
        deadline = asyncio.get_running_loop().time() + BATCH_SECONDS
        while len(found) < BATCH_MESSAGES and not self.stopping.is_set():
            left_seconds = deadline - asyncio.get_running_loop().time()
            if left_seconds <= 0:
                break
            try:
                message = await receive(left_seconds)
            except TimeoutError:
                break
            self.got(message)
            found.append(message)
        return found


async def produce(task: Task) -> None:
    """Send numbered messages at the given rate until stopped, then wait until all are durable."""
    numbers: dict[str, int] = defaultdict(int)
    for line in task.before:
        if line.did is Did.SENT:
            key, number = line.what
            numbers[key] = max(numbers[key], number + 1)
    producer = Producer(task.urls, TOPIC, task.token, name=task.name)
    await producer.start(START_SECONDS)
    while not task.stopping.is_set():
        key = f"{task.name}-{random.randrange(KEYS_PER_PRODUCER)}"
        durable = await producer.submit(key, f"{key}:{numbers[key]}".encode())
        durable.add_done_callback(partial(_note_sent, task, key, numbers[key]))
        numbers[key] += 1
        await _pause(task, 1 / task.rate)
    await producer.flush(CLOSE_SECONDS)
    await producer.close(CLOSE_SECONDS)


def _note_sent(task: Task, key: str, number: int, durable: asyncio.Future[MessageId]) -> None:
    if not durable.cancelled() and durable.exception() is None:
        task.journal.sent(key, number)


async def _pause(task: Task, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await task.stopping.wait()
    except TimeoutError:
        return


async def consume_stream(task: Task) -> None:
    """Acknowledge what comes; what is durably acknowledged while its segment stays here is kept."""
    consumer = StreamConsumer(task.urls, TOPIC, Role.STREAM, task.token, name=task.name)
    await consumer.start(START_SECONDS)
    while not task.stopping.is_set():
        ends: dict[int, int] = {}
        for message in await task.receive_some(consumer.receive):
            place = message.message_id
            if consumer.acknowledge(message):
                ends[place.segment_id] = place.offset + 1
        await consumer.flush()
        owned = consumer.owned_segments
        task.journal.write(Did.KEPT, [[key, end] for key, end in ends.items() if key in owned])
    await consumer.close(CLOSE_SECONDS)


async def consume_queue(task: Task) -> None:
    """Acknowledge what comes, each message for itself; what was ours until it was durable is kept."""
    consumer = QueueConsumer(task.urls, TOPIC, Role.QUEUE, task.token, name=task.name)
    await consumer.start(START_SECONDS)
    while not task.stopping.is_set():
        offsets: dict[int, list[int]] = defaultdict(list)
        interruptions, begun_at = consumer.interruptions, time.monotonic()
        for message in await task.receive_some(consumer.receive):
            consumer.acknowledge(message)
            offsets[message.message_id.segment_id].append(message.message_id.offset)
        await consumer.flush()
        in_time = time.monotonic() - begun_at < QUEUE_ACK_TIMEOUT_SECONDS
        if in_time and consumer.interruptions == interruptions:
            task.journal.write(Did.KEPT, [[segment_id, found] for segment_id, found in offsets.items()])
    await consumer.close(CLOSE_SECONDS)


async def consume_checkpoint(task: Task) -> None:
    """Keep checkpoints of what was received, and go on from the last one that was kept."""
    kept = [checkpoint_from_json(line.what) for line in task.before if line.did is Did.KEPT]
    consumer = CheckpointConsumer(
        task.urls,
        TOPIC,
        task.token,
        group=Role.CHECKPOINT,
        name=task.name,
        start=kept[-1] if kept else "earliest",
    )
    await consumer.start(START_SECONDS)
    if kept:  # within its grace a member finds the group's last commit, which may be older
        await consumer.restore(kept[-1])
    positions = dict(kept[-1].positions) if kept else {}
    while not task.stopping.is_set():
        await task.receive_some(consumer.receive)
        seen = consumer.checkpoint()
        positions |= seen.positions
        checkpoint = replace(seen, positions=positions)
        task.journal.write(Did.KEPT, checkpoint.to_json())
        await consumer.commit(checkpoint)
    await consumer.close(CLOSE_SECONDS)


WORK = {
    Role.PRODUCER: produce,
    Role.STREAM: consume_stream,
    Role.QUEUE: consume_queue,
    Role.CHECKPOINT: consume_checkpoint,
}


async def run(options: argparse.Namespace) -> None:
    """Do the work of a role until SIGTERM."""
    task = Task(options)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.stopping.set)
    task.journal.write(Did.BEGAN, None)
    await WORK[options.role](task)


def main(argv: Sequence[str]) -> int:
    """Read the options and work."""
    parser = argparse.ArgumentParser(prog="python -m launch.soak.client")
    parser.add_argument("role", type=Role)
    parser.add_argument("--name", required=True)
    parser.add_argument("--urls", required=True)
    parser.add_argument("--token-file", type=Path, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=1.0)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    asyncio.run(run(parser.parse_args(argv)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
