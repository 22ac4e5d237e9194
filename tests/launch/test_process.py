"""Children are ready when they say so, stop with what they started, and leave bounded logs."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from launch import guard as guard_script
from launch.logs import RotatingLog
from launch.process import ROOT, Guard, LaunchError, ManagedProcess
from launch.sandbox import Sandbox
from tests.launch.children import alive, child, kill_hard, spec, wait_until

SLEEPER = "import time; time.sleep(600)"
WITH_GRANDCHILD = (
    "import subprocess, sys, time, pathlib\n"
    "inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "pathlib.Path({path!r}).write_text(str(inner.pid))\n"
    "time.sleep(600)\n"
)
STUBBORN = (
    "import signal, time, pathlib\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "pathlib.Path({path!r}).write_text('x')\n"
    "time.sleep(600)\n"
)


def test_a_process_of_a_sandbox_that_does_not_start_tells_what_it_said() -> None:
    sandbox = Sandbox()
    try:
        with pytest.raises(LaunchError, match=r"(?s)ended with status 3.*the cause of it"):
            sandbox.run(
                spec("import sys; print('the cause of it', flush=True); sys.exit(3)", ready=lambda: False)
            )
    finally:
        sandbox.stop()


def test_ready_waits_for_the_probe(tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    script = f"import time, pathlib; time.sleep(0.3); pathlib.Path({str(sign)!r}).touch(); time.sleep(600)"
    with child(spec(script, ready=sign.exists), tmp_path) as process:
        assert sign.exists()
        assert alive(process.pid)
    assert not alive(process.pid)


def test_a_child_that_dies_while_starting_is_reported_with_its_last_words(tmp_path: Path) -> None:
    process = child(spec("raise SystemExit('no disk')", ready=lambda: False), tmp_path)
    with pytest.raises(LaunchError, match="ended with status 1 while starting") as caught:
        process.start()
    assert "no disk" in caught.value.hint


@pytest.mark.parametrize("end", ["\\n", ""], ids=["a whole line", "no end of the line"])
def test_the_last_words_are_told_however_late_they_are_read(
    tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child is gone before a thread has read its output: the log is held up until the end is known."""
    script = f"import sys; sys.stderr.write('no disk{end}'); sys.exit(1)"
    process = child(spec(script, ready=lambda: False), tmp_path)
    write = process.log.write

    def late(chunk: bytes) -> None:
        process.wait(10)
        threading.Event().wait(0.2)
        write(chunk)

    monkeypatch.setattr(process.log, "write", late)
    with pytest.raises(LaunchError, match="ended with status 1 while starting") as caught:
        process.start()
    assert "no disk" in caught.value.hint


def test_a_child_that_never_becomes_ready_is_stopped(tmp_path: Path) -> None:
    process = child(spec(SLEEPER, ready=lambda: False, ready_timeout_seconds=0.3), tmp_path)
    with pytest.raises(LaunchError, match=r"not ready within 0\.3 s"):
        process.start()
    assert not alive(process.pid)


def test_stop_takes_grandchildren_along(tmp_path: Path) -> None:
    note = tmp_path / "inner"
    script = WITH_GRANDCHILD.format(path=str(note))
    with child(spec(script, ready=lambda: note.exists() and note.read_text() != ""), tmp_path):
        inner = int(note.read_text())
        assert alive(inner)
    wait_until(lambda: not alive(inner))


def test_a_stubborn_child_is_killed_when_its_time_is_up(tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    script = STUBBORN.format(path=str(sign))
    process = child(spec(script, ready=sign.exists, stop_timeout_seconds=0.3), tmp_path)
    process.start()
    process.stop()
    assert process.returncode == -signal.SIGKILL


def test_stop_is_safe_to_repeat_and_before_the_start(tmp_path: Path) -> None:
    process = child(spec(SLEEPER), tmp_path)
    process.stop()
    process.start()
    process.stop()
    process.stop()
    assert not alive(process.pid)


@pytest.mark.parametrize("script", [SLEEPER, STUBBORN])
def test_a_killed_parent_leaves_no_child(tmp_path: Path, script: str) -> None:
    """The guard outlives the parent, and stops its children politely, then by force."""
    note, sign = tmp_path / "note", tmp_path / "sign"
    parent = (
        "import json, sys, time\n"
        "from pathlib import Path\n"
        "from launch.process import Guard\n"
        "from launch.logs import RotatingLog\n"
        "from launch.process import ManagedProcess\n"
        "from tests.launch.children import spec\n"
        "folder, script = Path(sys.argv[1]), sys.argv[2]\n"
        "guard = Guard()\n"
        "description = spec(script, stop_timeout_seconds=0.5)\n"
        "process = ManagedProcess(description, log=RotatingLog(folder / 'log', name='x'), guard=guard)\n"
        "process.start()\n"
        "(folder / 'new').write_text(json.dumps(process.pid)); (folder / 'new').rename(folder / 'note')\n"
        "time.sleep(600)\n"
    )
    arguments = [sys.executable, "-c", parent, str(tmp_path), script.format(path=str(sign))]
    with subprocess.Popen(arguments, cwd=ROOT) as running:
        wait_until(note.exists)
        wait_until(lambda: script is SLEEPER or sign.exists())
        pid = int(json.loads(note.read_text()))
        assert alive(pid)
        kill_hard(running.pid)
    wait_until(lambda: not alive(pid))


def test_a_guard_that_died_is_replaced_with_all_that_it_watched(tmp_path: Path) -> None:
    guard = Guard()
    with child(spec(SLEEPER), tmp_path, guard=guard) as first:
        kill_hard(guard.pid)
        wait_until(lambda: not alive(guard.pid))
        with child(spec(SLEEPER), tmp_path, guard=guard) as second:
            guard.close()
            wait_until(lambda: not alive(first.pid) and not alive(second.pid))


def test_the_end_of_a_child_is_seen_while_its_own_child_holds_the_output(tmp_path: Path) -> None:
    note = tmp_path / "inner"
    ended: list[ManagedProcess] = []
    script = WITH_GRANDCHILD.format(path=str(note))
    process = child(
        spec(script, ready=lambda: note.exists() and note.read_text() != ""), tmp_path, ended.append
    )
    with process:
        kill_hard(process.pid)
        wait_until(lambda: ended == [process])
        assert alive(int(note.read_text()))


def test_log_lines_carry_their_process_and_stay_bounded(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "web.log", name="web", limit_bytes=1_000)
    for number in range(200):
        log.write(f"line {number}\n".encode())
    assert log.tail(1).endswith("web     | line 199")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2_000


def test_an_endless_line_does_not_fill_the_memory(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "web.log", name="web")
    for _ in range(40):
        log.write(b"x" * 10_000)
    assert (tmp_path / "web.log").stat().st_size > 300_000


def test_who_has_the_number_of_a_child_that_ended_long_ago_is_left_alone(tmp_path: Path) -> None:
    ended = child(spec("pass"), tmp_path)
    ended.spawn()
    assert ended.wait(60) == 0
    with subprocess.Popen([sys.executable, "-c", SLEEPER], start_new_session=True) as stranger:
        assert ended._process is not None
        ended._process.pid = stranger.pid  # as the system gives numbers again, if seldom
        ended.stop()
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="births are told by Linux")
def test_a_guard_knows_a_child_from_a_stranger_with_its_number() -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEPER], start_new_session=True) as stranger:
        guard_script._stop(stranger.pid, "1", signal.SIGTERM, 0.0)
        assert stranger.poll() is None
        guard_script._stop(stranger.pid, guard_script.born(stranger.pid), signal.SIGTERM, 60.0)
        assert stranger.wait(60) == -signal.SIGTERM
