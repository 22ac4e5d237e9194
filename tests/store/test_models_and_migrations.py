"""The tables that migrations make are those that the models speak of."""

from io import StringIO

import pytest
from django.core.management import call_command


@pytest.mark.django_db
def test_no_migration_is_missing() -> None:
    told = StringIO()
    call_command("makemigrations", "scalable", check=True, dry_run=True, stdout=told)
    assert "No changes" in told.getvalue()
