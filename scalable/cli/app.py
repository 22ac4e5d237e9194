"""The entry of `scalable-topics`: streams that are closed, and Ctrl-C at any moment, end it in order."""

from __future__ import annotations

import os
import signal
import sys

from scalable.cli.statuses import INTERRUPTED


def main() -> None:
    """Entry of the console script."""
    # Whoever started this may have it ignored.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, _leave)
    from scalable.cli.command import run  # takes a while, in which there is nothing to end in order
    from scalable.cli.streams import drop_unwritten, watch_streams

    watch_streams()
    try:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = run(sys.argv[1:])
    except KeyboardInterrupt:
        status = INTERRUPTED
    if interruptible:
        signal.signal(signal.SIGINT, _leave)
    drop_unwritten()
    sys.exit(status)


def _leave(*_: object) -> None:
    """End at once, without a word: an exception in the midst of an import would be shown, or passed over."""
    os._exit(INTERRUPTED)
