"""The tokens that `./run` keeps in files: listed, kept over restarts, replaced when they hold no longer."""

from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from launch.prepare import write_tokens
from scalable.access_models import ServiceToken
from scalable.domain.errors import AccessFull
from scalable.services import access, tokens

pytestmark = pytest.mark.django_db


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A data directory after the first start."""
    write_tokens(tmp_path)
    return tmp_path


def read(directory: Path) -> dict[str, str]:
    """The tokens by role."""
    return {role: (directory / f"{role}-token").read_text().strip() for role in ("admin", "system")}


def test_the_tokens_of_the_files_are_listed(directory: Path) -> None:
    listed = {each.role: each.token_id for each in tokens.list_tokens(limit=9)[0]}
    subjects = {role: access.authenticate(token=token) for role, token in read(directory).items()}
    assert {role: subject.token_id for role, subject in subjects.items()} == listed
    assert {file.stat().st_mode & 0o777 for file in directory.iterdir()} == {0o600}


def test_a_restart_keeps_what_holds(directory: Path) -> None:
    before = read(directory)
    write_tokens(directory)
    assert read(directory) == before
    assert ServiceToken.objects.count() == 2


@pytest.mark.parametrize("former", ["", "no token", "unlisted", "of another role", "revoked"])
def test_a_restart_replaces_what_does_not(directory: Path, former: str) -> None:
    file = directory / "admin-token"
    if former == "revoked":
        subject = access.authenticate(token=file.read_text().strip())
        tokens.revoke_token(token_id=subject.token_id, actor="test")
    else:
        made = {"unlisted": access.mint_token(role="admin"), "of another role": read(directory)["system"]}
        file.write_text(made.get(former, former))
    before = read(directory)
    write_tokens(directory)
    after = read(directory)
    assert after["admin"] != before["admin"]
    assert access.authenticate(token=after["admin"]).superuser
    assert after["system"] == before["system"]


def test_a_full_table_stops_no_start(directory: Path, settings: Settings) -> None:
    settings.SCALABLE_MAX_TOKENS = 2
    revoked = access.authenticate(token=read(directory)["admin"])
    tokens.revoke_token(token_id=revoked.token_id, actor="test")
    with pytest.raises(AccessFull, match="tokens"):
        tokens.issue_token(role="somebody", actor="test")
    write_tokens(directory)
    assert access.authenticate(token=read(directory)["admin"]).superuser
