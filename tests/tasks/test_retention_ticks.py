"""A tick of retention ends before the next one is due, whatever the setting that both follow."""

import os
import subprocess
import sys

import pytest

from tests.tidy.sources import ROOT

ASKED = """
import django
from tasks.app import app
django.setup()
from scalable.services import pruning
from tasks import jobs
worked = []
pruning.sweep_due_topics = lambda *, seconds: worked.append(seconds)
jobs.sweep_retention()
print(*worked, app.conf.beat_schedule["sweep-retention"]["schedule"])
"""


@pytest.mark.parametrize("sweep_seconds", [0.01, 0.5, 4.5, 30.0])
def test_a_tick_works_for_less_than_the_time_between_two(sweep_seconds: float) -> None:
    environment = {**os.environ, "SCALABLE_RETENTION_SWEEP_SECONDS": str(sweep_seconds)}
    run = subprocess.run(
        [sys.executable, "-c", ASKED], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    worked, between = map(float, run.stdout.split())
    assert between / 2 < worked < between <= sweep_seconds
