"""The settings that the caller's environment gives, read before anything starts."""

import runpy
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from launch.process import ROOT, LaunchError
from scalable.domain.errors import ScalableError

HINT = "docs/settings.md has all settings"


def given_settings() -> Mapping[str, Any]:
    """Read all settings as the processes will do. Raises LaunchError that names the first unreadable one."""
    try:
        return runpy.run_path(str(ROOT / "scalable" / "settings.py"))
    except (ImproperlyConfigured, ScalableError) as error:
        raise LaunchError(str(error), HINT) from None
