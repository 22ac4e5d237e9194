"""A produce socket with frames only, for the rows that measure what a producer sees."""

from collections.abc import Sequence
from typing import Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from launch.sandbox import LiveNode
from scalable.domain.names import TopicName
from scalable.wire.frames import (
    PROTOCOL_VERSION,
    SUBPROTOCOL,
    Hello,
    Publish,
    Receipt,
    ServerFrame,
    Welcome,
    decode,
    decoder,
    encode,
    encode_publish,
)

MAX_FRAME_BYTES = 16 * 1024 * 1024

_decoder = decoder(ServerFrame)


class ProduceSocket:
    """One produce socket; at most as many batches are in flight as the node permits."""

    def __init__(self, node: LiveNode, topic: TopicName, *, producer: str) -> None:
        self._producer = producer
        self._opening = connect(
            f"{node.socket_url}/ws/v2/scalable/produce/{topic.path}",
            additional_headers=node.headers,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            max_size=MAX_FRAME_BYTES,
            proxy=None,
        )

    async def __aenter__(self) -> Self:
        self._socket: ClientConnection = await self._opening
        await self._socket.send(encode(Hello(protocol=PROTOCOL_VERSION, producer=self._producer)))
        welcome = decode(_decoder, await self._socket.recv())
        if not isinstance(welcome, Welcome):
            raise TypeError(f"expected a welcome, got {welcome}")
        self._permits = welcome.permits
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._socket.close()

    async def send_all(self, segment_id: int, batches: Sequence[bytes]) -> None:
        """Send batches to one segment and wait until every one is durable."""
        in_flight = 0
        for number, batch in enumerate(batches):
            if in_flight == self._permits:
                await self._take_receipt()
                in_flight -= 1
            await self._socket.send(encode_publish(Publish(number, segment_id, False, batch)))
            in_flight += 1
        for _ in range(in_flight):
            await self._take_receipt()

    async def round_trip(self) -> None:
        """Wait for the node's answer to a ping."""
        await (await self._socket.ping())

    async def _take_receipt(self) -> None:
        answer = decode(_decoder, await self._socket.recv())
        if not isinstance(answer, Receipt):
            raise TypeError(f"expected a receipt, got {answer}")
