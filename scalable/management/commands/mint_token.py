"""`manage.py mint_token admin [--ttl-seconds 3600]`: print a bearer token of a role."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from scalable.services import access


class Command(BaseCommand):
    """Prints a token signed with this installation's secret."""

    help = "Print a bearer token of a role (admin, system)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("role")
        parser.add_argument("--ttl-seconds", type=float, default=None)

    def handle(self, *args: Any, **options: Any) -> str:
        if not settings.SCALABLE_TOKEN_SECRET_GIVEN:
            raise CommandError("SCALABLE_TOKEN_SECRET is not set: no node would accept the token")
        return access.mint_token(role=options["role"], ttl_seconds=options["ttl_seconds"])
