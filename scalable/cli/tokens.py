"""Service tokens (superusers only): issued, listed, revoked."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from scalable.cli.files import private_file, replace_private_file
from scalable.cli.moments import as_text
from scalable.cli.paging import gather, limit_option
from scalable.cli.session import Session, with_admin
from scalable.cli.values import SPAN
from scalable.client import Admin
from scalable.domain.errors import TokenNotFound
from scalable.domain.json_text import load_json

COLUMNS = ("id", "role", "created by", "created", "expires", "revoked")


@click.group()
def tokens() -> None:
    """Tokens that let programs in: issue, list, revoke."""


@tokens.command()
@click.argument("role")
@click.option("--ttl", type=SPAN, help="How long it opens doors (30d); without it, until it is revoked.")
@click.option("-f", "--file", "path", help="New file for the token, mode 0600; else it is printed.")
@with_admin
def issue(session: Session, admin: Admin, role: str, ttl: float | None, path: str | None) -> None:
    """Issue a token for a role; it is shown this once."""
    if path is None:
        _show(session, admin.mint_token(role, ttl_seconds=ttl))
        return
    with private_file(path) as file:
        issued = admin.mint_token(role, ttl_seconds=ttl)
        file.write(issued.pop("token") + "\n")
    session.output.done(f"issued {issued['id']} for {role} into {path}", **issued, file=path)


def _show(session: Session, issued: dict[str, Any]) -> None:
    """Print the token alone, so that a shell can take it; what it is called goes beside it."""
    if session.output.as_json:
        session.output.document(issued)
        return
    session.output.document(issued["token"])
    session.output.note(f"issued {issued['id']} for {issued['role']}")


@tokens.command("list")
@limit_option
@with_admin
def list_tokens(session: Session, admin: Admin, limit: int | None) -> None:
    """List the tokens that were issued, the newest first; never the tokens themselves."""
    rows = gather(lambda size, offset: admin.tokens(limit=size, offset=offset), limit)
    session.output.rows([_row(each) for each in rows], COLUMNS, empty="no tokens")


def _row(token: dict[str, Any]) -> dict[str, Any]:
    return {
        **token,
        "created by": token["createdBy"],
        "created": as_text(token["createdAtMs"]),
        "expires": as_text(token["expiresAtMs"]),
        "revoked": as_text(token["revokedAtMs"]),
    }


@tokens.command()
@click.argument("path", type=click.Path(exists=True, dir_okay=False), metavar="FILE")
@click.option(
    "--ttl", type=SPAN, help="How long the new one opens doors (30d); without it, until it is revoked."
)
@with_admin
def rotate(session: Session, admin: Admin, path: str, ttl: float | None) -> None:
    """Put a new token of the same role into a file, then revoke the one that was there."""
    former = _claims_of(path)
    issued = admin.mint_token(former["sub"], ttl_seconds=ttl)
    replace_private_file(path, issued.pop("token") + "\n")
    if "jti" in former:
        with suppress(TokenNotFound):  # an id that is too long to be one
            admin.revoke_token(former["jti"], role=former["sub"])
    session.output.done(f"{path} holds {issued['id']} for {issued['role']}", **issued, file=path)


def _claims_of(path: str) -> dict[str, str]:
    """What the token in a file says of itself; raises UsageError when there is none."""
    try:
        payload = Path(path).read_text().strip().split(".")[1]
        claims = load_json(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return {name: str(claims[name]) for name in ("sub", "jti") if name in claims or name == "sub"}
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise click.UsageError(f"{path} holds no token") from error


@tokens.command()
@click.argument("token_id")
@click.option("--role", help="Of a token that was not issued here: revoke it, too, by its `jti`.")
@with_admin
def revoke(session: Session, admin: Admin, token_id: str, role: str | None) -> None:
    """Revoke a token for ever, which closes the sockets that it opened."""
    admin.revoke_token(token_id, role=role)
    session.output.done(f"revoked {token_id}", id=token_id)


COMMANDS = (tokens,)
