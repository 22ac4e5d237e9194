"""Bearer tokens and the rights of roles."""

import base64
import hmac
import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from django.conf import settings
from pytest_django.fixtures import Settings

from scalable.domain.access import GRANTABLE, Right, Scope
from scalable.domain.errors import Forbidden, InvalidName, TokenNotFound, Unauthenticated
from scalable.services import tokens
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
        ("admin", SAMPLES, {Right.LOOKUP, Right.SUPERUSER, Right.OBSERVE, Right.KNOWN}),
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


def _signed(claims: dict[str, object]) -> str:
    """A token with claims that a library would not write; `jwt.encode` checks some of them."""
    payload = json.dumps(claims).encode()
    return jwt.api_jws.encode(payload, settings.SCALABLE_TOKEN_SECRET, "HS256")


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
        *(
            pytest.param(lambda sub=sub: _signed({"sub": sub}), id=f"subject-{name}")
            for name, sub in {
                "empty": "",
                "line-break": "a\nb",
                "nul": "a\0",
                "surrogate": "a\ud800",
                "long": "a" * 256,
            }.items()
        ),
        *(
            pytest.param(lambda exp=exp: _signed({"sub": "admin", "exp": exp}), id=f"expiry-{name}")
            for name, exp in {"huge": 10**400, "infinite": float("inf"), "text": "never", "list": []}.items()
        ),
    ],
)
def test_other_tokens_are_refused(token: object) -> None:
    with pytest.raises(Unauthenticated):
        authenticate(token=token() if callable(token) else str(token))


def test_a_token_with_time_left_is_taken() -> None:
    assert authenticate(token=mint_token(role="admin", ttl_seconds=60)).superuser


# Tokens that somebody else signs.


@pytest.fixture(scope="module")
def key_pair() -> tuple[str, str]:
    """A private and a public key, as PEM."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()


def test_a_foreign_signature_holds_where_its_key_is_known(
    db: None, settings: Settings, key_pair: tuple[str, str]
) -> None:
    private, public = key_pair
    token = jwt.encode({"sub": "admin", "jti": "theirs"}, private, "RS256")
    with pytest.raises(Unauthenticated):
        authenticate(token=token)
    settings.SCALABLE_TOKEN_PUBLIC_KEY = public
    assert authenticate(token=token).superuser
    assert authenticate(token=mint_token(role="system")).system
    with pytest.raises(Unauthenticated, match="expired"):
        authenticate(token=jwt.encode({"sub": "admin", "exp": 1}, private, "RS256"))


def test_a_foreign_token_is_revoked_by_its_id_and_role(
    db: None, settings: Settings, key_pair: tuple[str, str]
) -> None:
    private, settings.SCALABLE_TOKEN_PUBLIC_KEY = key_pair
    token, other = (jwt.encode({"sub": "admin", "jti": each}, private, "RS256") for each in ("one", "other"))
    with pytest.raises(TokenNotFound):
        tokens.revoke_token(token_id="one", actor="test")
    with pytest.raises(InvalidName):
        tokens.revoke_token(token_id="one", role="a/b", actor="test")
    assert authenticate(token=token).superuser
    for _ in range(2):
        assert tokens.revoke_token(token_id="one", role="admin", actor="test").revoked_at_ms
    with pytest.raises(Unauthenticated, match="revoked"):
        authenticate(token=token)
    assert authenticate(token=other).superuser
    listed, total = tokens.list_tokens(limit=10)
    assert [(each.token_id, each.role) for each in listed] == [("one", "admin")]
    assert total == 1


def test_a_public_key_is_no_secret_to_sign_with(settings: Settings, key_pair: tuple[str, str]) -> None:
    _, public = key_pair
    settings.SCALABLE_TOKEN_PUBLIC_KEY = public
    head = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "typ": "JWT"}).encode()).rstrip(b"=")
    body = base64.urlsafe_b64encode(json.dumps({"sub": "admin"}).encode()).rstrip(b"=")
    seal = hmac.digest(public.encode(), head + b"." + body, "sha256")
    forged = b".".join((head, body, base64.urlsafe_b64encode(seal).rstrip(b"="))).decode()
    with pytest.raises(Unauthenticated):
        authenticate(token=forged)


def test_which_roles_are_superusers_is_a_setting(settings: Settings) -> None:
    settings.SCALABLE_SUPERUSER_ROLES = ["boss"]
    assert authenticate(token=mint_token(role="boss")).superuser
    assert not authenticate(token=mint_token(role="admin")).superuser


def test_a_role_is_a_name() -> None:
    with pytest.raises(InvalidName):
        mint_token(role="a/b")
