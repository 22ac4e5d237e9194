"""`python -m bench.splitting TOPIC`: splits the segment of each hash that a line names, and says when it did.

A process of its own, so that what it costs to ask and to look keeps no producer of the bench from running.
"""

import subprocess
import sys
import time
from collections.abc import Sequence

from scalable.domain.names import TopicName

POLL_SECONDS = 0.02
WAIT_SECONDS = 60


class Splitter:
    """The process, for the one who asks; `split` blocks."""

    def __init__(self, topic: TopicName) -> None:
        argv = [sys.executable, "-m", "bench.splitting", str(topic)]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def split(self, hash16: int) -> None:
        """Split the segment that has this hash, and wait until the layout is committed."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the process has no pipes")
        self._process.stdin.write(f"{hash16}\n")
        self._process.stdin.flush()
        if not self._process.stdout.readline():
            raise RuntimeError("the splitting process ended")


def main(argv: Sequence[str]) -> None:
    """Split as long as lines come."""
    import django

    django.setup()

    from scalable.domain.operations import Phase
    from scalable.services import scaling, topics
    from scalable.store.operations import read

    name = TopicName.parse(argv[0])
    for line in sys.stdin:
        layout = topics.get_topic(name=name).layout
        segment = next(each for each in layout.active if each.hash_range.contains(int(line)))
        request = scaling.request_split(name=name, segment_id=segment.segment_id, actor="bench")
        deadline = time.monotonic() + WAIT_SECONDS
        while read(request.operation_id).phase not in (Phase.COMMITTED, Phase.NOTIFIED):
            if time.monotonic() > deadline:
                raise TimeoutError(f"split {request.operation_id} was not done in {WAIT_SECONDS} seconds")
            time.sleep(POLL_SECONDS)
        print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
