"""`manage.py mint_token` refuses to print what no node would accept."""

import os
import subprocess
import sys

import pytest
from django.conf import settings

from launch.process import ROOT
from launch.sandbox import TOKEN_SECRET
from scalable.domain.errors import Unauthenticated
from scalable.services import access, tokens


def mint(**environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as an operator does."""
    left_out = {"SCALABLE_TOKEN_SECRET", "DATABASE_URL"}
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return subprocess.run(
        [sys.executable, "manage.py", "mint_token", "admin"],
        cwd=ROOT,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("given", [True, False])
def test_a_token_wants_the_secret_of_the_instance(given: bool) -> None:
    run = mint(SCALABLE_TOKEN_SECRET=TOKEN_SECRET) if given else mint()
    assert (run.returncode == 0) == given
    assert run.stdout.count(".") == 2 if given else "SCALABLE_TOKEN_SECRET" in run.stderr


def test_a_token_is_noted_where_there_is_a_database(service_environment: dict[str, str]) -> None:
    url, secret = service_environment["DATABASE_URL"], settings.SCALABLE_TOKEN_SECRET
    run = mint(SCALABLE_TOKEN_SECRET=secret, DATABASE_URL=url)
    assert run.returncode == 0, run.stderr
    (noted,), total = tokens.list_tokens(limit=10)
    subject = access.authenticate(token=run.stdout.strip())
    assert (subject.role, subject.token_id, total) == ("admin", noted.token_id, 1)
    tokens.revoke_token(token_id=noted.token_id, actor="test")
    with pytest.raises(Unauthenticated):
        access.authenticate(token=run.stdout.strip())
