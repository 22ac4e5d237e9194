"""Bearer tokens and the rights of roles."""

import base64
import json

import jwt
import pytest
from django.conf import settings

from scalable.domain.access import GRANTABLE, Right, Scope
from scalable.domain.errors import Forbidden, InvalidName, Unauthenticated
from scalable.services.access import authenticate, mint_token, require


def test_a_minted_token_speaks_for_its_role() -> None:
    admin, system = (
        authenticate(token=mint_token(role="admin")),
        authenticate(token=mint_token(role="system")),
    )
    assert (admin.role, admin.superuser, admin.system) == ("admin", True, False)
    assert (system.role, system.superuser, system.system) == ("system", False, True)


TOPIC, SAMPLES = Scope("public", "default", "orders"), Scope("system", "load", "samples")


@pytest.mark.parametrize(
    ("role", "scope", "rights"),
    [
        ("admin", TOPIC, {*GRANTABLE, Right.SUPERUSER, Right.OBSERVE, Right.KNOWN}),
        ("admin", SAMPLES, {Right.SUPERUSER, Right.OBSERVE, Right.KNOWN}),
        ("system", TOPIC, {Right.LOOKUP, Right.SYSTEM, Right.OBSERVE, Right.KNOWN}),
        ("system", SAMPLES, {*GRANTABLE, Right.SYSTEM, Right.OBSERVE, Right.KNOWN}),
        ("somebody", TOPIC, {Right.KNOWN}),
        ("somebody", SAMPLES, {Right.KNOWN}),
    ],
)
def test_rights_of_roles(db: None, role: str, scope: Scope, rights: set[Right]) -> None:
    subject = authenticate(token=mint_token(role=role))
    for right in Right:
        if right in rights:
            assert require(subject=subject, right=right, scope=scope) is subject
        else:
            with pytest.raises(Forbidden):
                require(subject=subject, right=right, scope=scope)


def test_nobody_has_no_right() -> None:
    with pytest.raises(Unauthenticated):
        require(subject=None, right=Right.KNOWN)


def _unsigned() -> str:
    head, body = ({"alg": "none", "typ": "JWT"}, {"sub": "admin"})
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (head, body)
    ]
    return f"{parts[0]}.{parts[1]}."


@pytest.mark.parametrize(
    "token",
    [
        pytest.param("", id="empty"),
        pytest.param("not a token", id="no-token"),
        pytest.param(_unsigned(), id="unsigned"),
        pytest.param(jwt.encode({"sub": "admin"}, "k" * 40, "HS256"), id="another-key"),
        pytest.param(jwt.encode({"sub": "admin"}, "k" * 64, "HS512"), id="another-algorithm"),
        pytest.param(lambda: jwt.encode({}, settings.SCALABLE_TOKEN_SECRET, "HS256"), id="no-subject"),
        pytest.param(
            lambda: jwt.encode({"sub": 7}, settings.SCALABLE_TOKEN_SECRET, "HS256"), id="odd-subject"
        ),
        pytest.param(lambda: mint_token(role="admin", ttl_seconds=-1), id="expired"),
    ],
)
def test_other_tokens_are_refused(token: object) -> None:
    with pytest.raises(Unauthenticated):
        authenticate(token=token() if callable(token) else str(token))


def test_a_token_with_time_left_is_taken() -> None:
    assert authenticate(token=mint_token(role="admin", ttl_seconds=60)).superuser


def test_a_role_is_a_name() -> None:
    with pytest.raises(InvalidName):
        mint_token(role="a/b")
