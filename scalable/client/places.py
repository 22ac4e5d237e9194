"""Where a batch lies that cannot be read: who has to pass over it needs its place."""

from collections.abc import Iterator
from contextlib import contextmanager

from scalable.domain.errors import BatchInvalid


@contextmanager
def place_named(segment_id: int, base_offset: int) -> Iterator[None]:
    """Read a batch that was delivered; raises BatchInvalid, which names its segment and first offset."""
    try:
        yield
    except BatchInvalid as error:
        place = f"it lies in segment {segment_id} at offset {base_offset}"
        raise BatchInvalid(problem=f"{error.fields['problem']} ({place})") from error
