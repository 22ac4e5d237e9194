"""A connection is handed on in slices: nothing is lost or moved, and others have their turn between them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable.api.paced_transport import SLICE_BYTES, PacedTransport


class Network(asyncio.Transport):
    """What a connection's transport is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.is_read = True
        self.is_closed = self.is_aborted = False
        self.written: list[bytes] = []
        self.link: object = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.link if name == "socket" else default

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def pause_reading(self) -> None:
        assert self.is_read
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read
        self.is_read = True


def paced(
    take: Callable[[bytes], None], *, cut_seconds: float | None = None
) -> tuple[PacedTransport, Network]:
    network = Network()
    return PacedTransport(network, asyncio.get_running_loop(), take, cut_seconds=cut_seconds), network


ACTIONS = st.one_of(
    st.integers(0, 5 * SLICE_BYTES),  # so many bytes come
    st.sampled_from(["pause", "hold", "resume", "turn"]),
)


@given(st.lists(ACTIONS, max_size=30), st.integers(1, 7))
def test_what_came_is_handed_on_once_and_in_its_order(actions: list[int | str], pause_each: int) -> None:
    asyncio.run(play(actions, pause_each))


async def play(actions: list[int | str], pause_each: int) -> None:
    sent, taken, slices = bytearray(), bytearray(), 0

    def take(data: bytes) -> None:
        nonlocal slices
        assert not transport.is_paused
        assert len(data) <= SLICE_BYTES
        taken.extend(data)
        slices += 1
        if slices % pause_each == 0:
            transport.pause_reading()

    transport, network = paced(take)
    for action in actions:
        if isinstance(action, int):
            data = len(sent).to_bytes(8, "big") * (action // 8)
            sent += data
            transport.receive(data)
        elif action == "turn":
            await asyncio.sleep(0)
        else:
            {"pause": transport.pause_reading, "hold": transport.hold, "resume": transport.resume_reading}[
                action
            ]()
    while taken != sent or transport.is_paused:
        transport.resume_reading()
        await asyncio.sleep(0)
    assert taken == sent
    assert network.is_read


async def test_others_have_their_turn_between_slices() -> None:
    order: list[str] = []

    def take(data: bytes) -> None:
        order.append("slice")
        until = asyncio.get_running_loop().time() + 0.003  # longer than a turn
        while asyncio.get_running_loop().time() < until:
            pass

    transport, network = paced(take)
    transport.receive(bytes(3 * SLICE_BYTES))
    for _ in range(2):
        assert not network.is_read
        order.append("other")
        await asyncio.sleep(0)
    assert order == ["slice", "other", "slice", "other", "slice"]
    assert network.is_read


@pytest.mark.parametrize(
    "problem", [OSError(9, "Bad file descriptor"), ValueError("negative file descriptor")]
)
async def test_a_connection_is_cut_whose_socket_is_closed_already(problem: Exception) -> None:
    """What a socket that is gone says depends on the loop."""

    class Gone:
        def setsockopt(self, *_: object) -> None:
            raise problem

    transport, network = paced(lambda data: None)
    network.link = Gone()
    transport.cut()
    assert network.is_aborted


async def test_nothing_is_handed_on_after_the_end() -> None:
    taken: list[bytes] = []
    transport, network = paced(taken.append)
    transport.hold()
    transport.receive(b"early")
    network.close()
    transport.resume_reading()
    await asyncio.sleep(0)
    assert taken == []


async def test_whoever_reads_nothing_is_cut_after_the_close() -> None:
    transport, network = paced(lambda _: None, cut_seconds=0)
    transport.close()
    assert not network.is_aborted
    await asyncio.sleep(0.01)
    assert network.is_aborted
