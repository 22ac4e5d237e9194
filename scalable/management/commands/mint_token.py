"""`manage.py mint_token admin [--ttl-seconds 3600]`: print a bearer token of a role.

With `DATABASE_URL` the token is noted there, so that it is listed and can be revoked like those of REST;
without one only a change of the secret ends it before its time.
"""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from scalable.services import access, tokens

ACTOR = "manage.py mint_token"


class Command(BaseCommand):
    """Prints a token signed with this installation's secret."""

    help = "Print a bearer token of a role (admin, system)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("role")
        parser.add_argument("--ttl-seconds", type=float, default=None)

    def handle(self, *args: Any, **options: Any) -> str:
        if not settings.SCALABLE_TOKEN_SECRET_GIVEN:
            raise CommandError("SCALABLE_TOKEN_SECRET is not set: no node would accept the token")
        role, ttl_seconds = options["role"], options["ttl_seconds"]
        if not settings.SCALABLE_DATABASE_GIVEN:
            return access.mint_token(role=role, ttl_seconds=ttl_seconds)
        return tokens.issue_token(role=role, ttl_seconds=ttl_seconds, actor=ACTOR).token
