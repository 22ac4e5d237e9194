"""`python -m launch.prepare <data-dir>`: migrate, write the service tokens, make the first superuser."""

import secrets
import sys
from pathlib import Path

import django
from django.contrib.auth import get_user_model
from django.core.management import call_command

from launch.embedded.service import private_file

SUPERUSER = "admin"
PASSWORD_FILE = "admin-password"
ACTOR = "./run"


def write_tokens(directory: Path) -> None:
    """Write a token for each role that works on this machine, readable by this account alone.

    One that still holds stays; one that was revoked, or is unknown to the database, is replaced.
    """
    from scalable.services import access, tokens  # whoever only imports this module has not set Django up

    for role in (access.ADMIN_ROLE, access.SYSTEM_ROLE):
        file = directory / f"{role}-token"
        subject = tokens.listed(token=file.read_text().strip()) if file.exists() else None
        if subject is None or subject.role != role:
            issued = tokens.issue_token(role=role, actor=ACTOR, is_limited=False)
            private_file(file, issued.token + "\n")


def make_superuser(directory: Path) -> None:
    """Make the user of the dashboard in a database that has none, with a password kept beside the tokens."""
    users = get_user_model()._default_manager
    if users.filter(is_superuser=True).exists():
        return
    password = secrets.token_urlsafe(12)
    users.create_superuser(username=SUPERUSER, email="", password=password)
    private_file(directory / PASSWORD_FILE, password + "\n")


def main(directory: Path) -> None:
    django.setup()
    call_command("migrate", interactive=False, verbosity=1)
    write_tokens(directory)
    make_superuser(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
