"""A stored batch that nobody can read ends a consumer and tells its place, so that one can skip it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from scalable.domain.errors import BatchInvalid
from tests.client import test_bucket_inbox, test_inbox, test_queue_inbox

AT = 40


def broken(batch: bytes) -> bytes:
    """Give a batch whose last byte is another than that which its index has a checksum of."""
    return batch[:-1] + bytes([batch[-1] ^ 0xFF])


def to_a_stream() -> None:
    delivery = test_inbox.delivery(AT, 3)
    inbox = test_inbox.owning(test_inbox.assigned(0))
    inbox.deliver(msgspec.structs.replace(delivery, batch=broken(delivery.batch)))


def to_a_bucket() -> None:
    delivery = test_bucket_inbox.delivery("mmm", base_offset=AT)
    inbox, _ = test_bucket_inbox.owning()
    inbox.deliver(msgspec.structs.replace(delivery, batch=broken(delivery.batch)))


def to_a_queue() -> None:
    delivery = test_queue_inbox.delivery((AT, AT + 3, 1), base=AT)
    inbox = test_queue_inbox.inbox_of(0)
    inbox.deliver(msgspec.structs.replace(delivery, batch=broken(delivery.batch)), 0.0)


@pytest.mark.parametrize("deliver", [to_a_stream, to_a_bucket, to_a_queue])
def test_an_unreadable_batch_is_told_with_its_place(deliver: Callable[[], None]) -> None:
    with pytest.raises(BatchInvalid, match=rf"checksum.*segment 0 at offset {AT}"):
        deliver()
