"""Jobs of one kind in one directory: the second waits for the first, or does not run."""

import threading
from pathlib import Path

from spark.jobs import take_lock


def test_a_lock_is_waited_for_as_long_as_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "report.lock"
    taken: list[bool] = []
    with path.open("w") as later:
        with path.open("w") as holder:
            assert take_lock(holder, seconds=0)
            assert not take_lock(later, seconds=0)
            waiting = threading.Thread(target=lambda: taken.append(take_lock(later, seconds=60)))
            waiting.start()
        waiting.join(60)
        assert taken == [True]
