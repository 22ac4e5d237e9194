"""Open sockets end when what let them in holds no longer: by expiry, revocation, loss of a grant, log-out."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from pytest_django.fixtures import DjangoAssertNumQueries
from websockets.asyncio.client import connect

from launch.sandbox import LiveNode, ProcessFactory
from scalable.access_models import Grant
from scalable.api.doorkeeper import Doorkeeper, Pass
from scalable.client import Producer, StreamConsumer
from scalable.domain.access import Right, Scope, Subject
from scalable.domain.errors import Forbidden, ScalableError, TooManyRequests
from scalable.domain.names import TopicName
from scalable.services import access, grants, tenants, tokens
from scalable.services.rules import rules
from scalable.wire.frames import PROTOCOL_VERSION, Delta, ErrorFrame, Hello, Snapshot, Welcome
from tests.api.peers import ROOT, Peer, ask, raw_socket
from tests.api.watchers import ACTOR, create, lookup_path, split

NAME = TopicName("public", "default", "guarded")
NAMESPACE = Scope("public", "default")
TOPIC = Scope(NAME.tenant, NAME.namespace, NAME.name)
PATHS = [f"{kind}/{NAME.path}" for kind in ("lookup", "produce")] + [
    f"{kind}/{NAME.path}/s" for kind in ("consume", "queue", "controller")
]


def grant(role: str, *actions: str, scope: Scope = NAMESPACE) -> str:
    """Let a role do this, and give a token of it."""
    grants.grant(scope=scope, role=role, actions=actions, actor=ACTOR)
    return access.mint_token(role=role)


async def greet(peer: Peer) -> None:
    """Say hello on a watch and take what is told first."""
    await peer.send(Hello(protocol=PROTOCOL_VERSION))
    await peer.expect(Welcome)
    await peer.expect(Snapshot)


CLOSED_WITHIN_SECONDS = 5
"""What docs/websocket.md promises of every socket whose right is gone."""


async def ends_with(
    peer: Peer, close_code: int, code: str, *, within_seconds: float = CLOSED_WITHIN_SECONDS
) -> None:
    """The last frame of a socket is the error, and so is its close code; and it comes in time."""
    async with asyncio.timeout(within_seconds):
        await peer.wait_for(ErrorFrame)
        assert await peer.frames_until_closed() == []
    assert (await peer.close_code(), peer.connection.close_reason) == (close_code, code)


async def test_a_lost_grant_closes_every_kind_of_socket(live_node: LiveNode) -> None:
    await ask(create, NAME)
    token = await ask(grant, "worker", "admin")
    other = await ask(grant, "other", "lookup")
    async with AsyncExitStack() as open_sockets:
        peers = [
            await open_sockets.enter_async_context(raw_socket(live_node, path, token=token)) for path in PATHS
        ]
        staying = await open_sockets.enter_async_context(
            raw_socket(live_node, lookup_path(NAME), token=other)
        )
        await greet(peers[0])
        await greet(staying)
        await ask(grants.revoke, scope=NAMESPACE, role="worker", actor=ACTOR)
        for peer in peers:
            await ends_with(peer, 4403, "forbidden")
        await ask(split, NAME, 0)
        assert isinstance(await staying.receive(), Delta)


async def test_fewer_actions_close_what_wants_the_others(live_node: LiveNode) -> None:
    await ask(create, NAME)
    token = await ask(grant, "worker", "produce", "consume", scope=TOPIC)
    async with (
        raw_socket(live_node, f"produce/{NAME.path}", token=token) as producer,
        raw_socket(live_node, lookup_path(NAME), token=token) as watcher,
    ):
        await greet(watcher)
        await ask(grants.grant, scope=TOPIC, role="worker", actions=["consume"], actor=ACTOR)
        await ends_with(producer, 4403, "forbidden")
        await ask(split, NAME, 0)
        assert isinstance(await watcher.receive(), Delta)


async def test_a_change_that_nobody_announced_is_noticed(live_node: LiveNode) -> None:
    await ask(create, NAME)
    token = await ask(grant, "worker", "lookup")
    async with raw_socket(live_node, lookup_path(NAME), token=token) as peer:
        await greet(peer)
        await ask(Grant.objects.filter(role="worker").delete)
        await ends_with(peer, 4403, "forbidden")


async def test_tokens_end_by_time_and_by_revocation_and_admins_with_their_tenant(
    live_node: LiveNode,
) -> None:
    await ask(create, NAME)
    issued = await ask(tokens.issue_token, role="admin", actor=ACTOR)
    expires_at = int(time.time()) + 6
    expiring = access.sign({"sub": "admin", "exp": expires_at})
    await ask(tenants.update_tenant, tenant="public", admin_roles=["boss"], actor=ACTOR)
    boss = access.mint_token(role="boss")
    path = lookup_path(NAME)
    async with (
        raw_socket(live_node, path, token=expiring) as brief,
        raw_socket(live_node, path, token=issued.token) as revoked,
        raw_socket(live_node, path, token=boss) as administrator,
    ):
        for peer in (brief, revoked, administrator):
            await greet(peer)
        await ask(tokens.revoke_token, token_id=issued.token_id, actor=ACTOR)
        await ends_with(revoked, 4401, "unauthenticated")
        await ask(tenants.update_tenant, tenant="public", admin_roles=[], actor=ACTOR)
        await ends_with(administrator, 4403, "forbidden")
        left_seconds = expires_at - time.time()
        await ends_with(brief, 4401, "unauthenticated", within_seconds=left_seconds + CLOSED_WITHIN_SECONDS)
        assert time.time() >= expires_at


async def test_the_client_says_that_the_right_was_taken_away(live_node: LiveNode) -> None:
    await ask(create, NAME)
    token = await ask(grant, "worker", "produce", "consume")
    sent, received = asyncio.Event(), asyncio.Event()

    async def produce() -> None:
        async with Producer(live_node.url, NAME, token) as producer:
            while True:
                await producer.send("key", b"value")
                sent.set()

    async def consume() -> None:
        async with StreamConsumer(live_node.url, NAME, "s", token, name="one") as consumer:
            while True:
                await consumer.receive()
                received.set()

    clients = [asyncio.create_task(produce()), asyncio.create_task(consume())]
    async with asyncio.timeout(60):
        await asyncio.gather(sent.wait(), received.wait())
        await ask(grants.revoke, scope=NAMESPACE, role="worker", actor=ACTOR)
        ended = await asyncio.gather(*clients, return_exceptions=True)
    assert [type(error) for error in ended] == [Forbidden, Forbidden]


# The dashboard's sessions.


def log_in(name: str) -> tuple[User, SessionStore]:
    """A session of a new superuser."""
    user = User.objects.create_superuser(name, password="first")
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    return user, session


@asynccontextmanager
async def page_socket(node: LiveNode, session: SessionStore) -> AsyncIterator[Peer]:
    """A watch as a page of the dashboard opens it."""
    async with connect(
        f"{node.socket_url}{ROOT}/{lookup_path(NAME)}",
        additional_headers={"Cookie": f"{settings.SESSION_COOKIE_NAME}={session.session_key}"},
        origin=node.url,  # type: ignore[arg-type]
        proxy=None,
    ) as connection:
        peer = Peer(connection)
        await greet(peer)
        yield peer


def change_password(user: User, session: SessionStore) -> None:
    user.set_password("second")
    user.save()


def update(**fields: object) -> Callable[[User, SessionStore], object]:
    """Change columns of the user's row."""
    return lambda user, session: User.objects.filter(pk=user.pk).update(**fields)


ENDS_OF_A_LOGIN: dict[str, Callable[[User, SessionStore], object]] = {
    "leaver": lambda user, session: session.flush(),
    "changer": change_password,
    "loser": update(is_superuser=False),
    "renamed": update(username="other"),
    "inactive": update(is_active=False),
    "deleted": lambda user, session: user.delete(),
}


async def test_the_end_of_a_login_closes_its_sockets(processes: ProcessFactory) -> None:
    node = processes.node(SCALABLE_NODE_URL=settings.SCALABLE_NODE_URL)  # which names the cookie
    await ask(create, NAME)
    logins = {name: await ask(log_in, name) for name in (*ENDS_OF_A_LOGIN, "stayer")}
    async with AsyncExitStack() as open_sockets:
        peers = {
            name: await open_sockets.enter_async_context(page_socket(node, session))
            for name, (_, session) in logins.items()
        }
        for name, end in ENDS_OF_A_LOGIN.items():
            await ask(end, *logins[name])
        for name in ENDS_OF_A_LOGIN:
            await ends_with(peers[name], 4401, "unauthenticated")
        await ask(split, NAME, 0)
        assert isinstance(await peers["stayer"].receive(), Delta)


# The doorkeeper by itself.


class Visitor:
    """Somebody who can be turned out."""

    def __init__(self) -> None:
        self.errors: list[ScalableError] = []

    def turn_out(self, error: ScalableError) -> None:
        self.errors.append(error)


def test_a_node_lets_in_no_more_sockets_than_it_may(settings: pytest.FixtureRequest) -> None:
    settings.SCALABLE_MAX_SOCKETS, settings.SCALABLE_MAX_SOCKETS_PER_ROLE = 3, 2  # type: ignore[attr-defined]
    keeper = Doorkeeper()

    def knock(role: str) -> Visitor:
        visitor = Visitor()
        keeper.admit(visitor, Pass(Subject(role, superuser=True), Right.LOOKUP, TOPIC))
        return visitor

    first = knock("one")
    knock("one")
    with pytest.raises(TooManyRequests):
        knock("one")
    knock("two")
    with pytest.raises(TooManyRequests):
        knock("two")
    keeper.part(first)
    keeper.part(first)
    knock("one")
    assert len(keeper) == 3


def test_a_check_costs_no_statement(db: None, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    grant("worker", "produce")
    worker = Subject("worker", token_id="t")
    assert access.may(subject=worker, right=Right.PRODUCE, scope=TOPIC)
    with django_assert_num_queries(0):
        for _ in range(100):
            known = rules.latest
            access.check_revoked(subject=worker, known=known)
            access.require(subject=worker, right=Right.PRODUCE, scope=TOPIC, known=known)
            with pytest.raises(Forbidden):
                access.require(subject=worker, right=Right.ADMIN, scope=TOPIC, known=known)


def test_what_was_granted_is_read_only_when_it_changed(
    db: None, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    grant("worker", "produce")
    before = rules.refresh()
    with django_assert_num_queries(1):
        assert rules.refresh() is before
    grants.revoke(scope=NAMESPACE, role="worker", actor=ACTOR)
    assert rules.current() is not before
