"""Throttles the login of the dashboard: attempts are counted by name and address, on all nodes together."""

import hashlib
import logging
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

import redis
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render, resolve_url
from redis.backoff import NoBackoff
from redis.retry import Retry

from scalable.api import refused_logins
from scalable.api.pages import CONTENT_SECURITY_POLICY
from scalable.api.rates import counted_address

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 0.5
LONGEST_NAME = 255
"""More than any user has: longer ones count as one."""
GetResponse = Callable[[HttpRequest], HttpResponseBase]


class Excess(NamedTuple):
    """How long to wait before the next attempt, and whether this is the first one of those too many."""

    wait_seconds: int = 0
    is_first: bool = False


class LimitedLogins:
    """Middleware around the login: an attempt too many is refused before any password is looked at.

    Every attempt counts, so that many at once cannot slip through; one that succeeds takes the counts of its
    name back. Without the counters of the installation the login stays open: it is the database that decides.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response
        self._counters = redis.Redis.from_url(
            settings.SCALABLE_REDIS_URL,
            socket_timeout=TIMEOUT_SECONDS,
            socket_connect_timeout=TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 1),
        )

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.method != "POST" or request.path != resolve_url(settings.LOGIN_URL):
            return self._get_response(request)
        address = counted_address(str(request.META.get("REMOTE_ADDR", "")))
        by_name = _key("name", _as_compared(request.POST.get("username", "")), address)
        of_name = self._count(by_name, settings.SCALABLE_LOGIN_ATTEMPTS)
        of_all = self._count(_key("address", address), settings.SCALABLE_LOGIN_ATTEMPTS_PER_ADDRESS)
        wait_seconds = max(of_name.wait_seconds, of_all.wait_seconds)
        # An address that is refused whatever the name makes no entries by trying other names.
        if of_all.is_first or (of_name.is_first and not of_all.wait_seconds):
            refused_logins.note_throttled(request.POST.get("username", ""))
        if wait_seconds:
            return _refusal(request, wait_seconds)
        response = self._get_response(request)
        if response.status_code == 302:
            self._forget(by_name)
        return response

    def _count(self, key: str, limit: int) -> Excess:
        """Count an attempt, and tell whether it is one too many."""
        try:
            pipeline = self._counters.pipeline()
            pipeline.set(key, 0, ex=settings.SCALABLE_LOGIN_WINDOW_SECONDS, nx=True)
            pipeline.incr(key)
            pipeline.ttl(key)
            _, attempts, seconds = pipeline.execute()
        except (redis.RedisError, OSError) as error:
            logger.warning("Attempts to log in are not counted: %s", error)
            return Excess()
        return Excess(max(1, int(seconds)), attempts == limit + 1) if attempts > limit else Excess()

    def _forget(self, key: str) -> None:
        try:
            self._counters.delete(key)
        except (redis.RedisError, OSError) as error:
            logger.warning("Attempts to log in stay counted: %s", error)


def _as_compared(name: str) -> str:
    """A name as the login's form compares it: other spellings of it are no other names."""
    return unicodedata.normalize("NFKC", name.strip()[:LONGEST_NAME])


def _key(kind: str, *parts: str) -> str:
    digest = hashlib.sha256("\x00".join(parts).encode()).hexdigest()
    return f"{settings.SCALABLE_REDIS_PREFIX}login:{kind}:{digest}"


def _refusal(request: HttpRequest, wait_seconds: int) -> HttpResponse:
    """Say when to come back: to a person on the login page, to a program in a line."""
    headers = {"Retry-After": str(wait_seconds)}
    if "text/html" not in request.headers.get("Accept", ""):
        line = f"Too many attempts to log in. Try again in {wait_seconds} seconds.\n"
        return HttpResponse(line, status=429, content_type="text/plain", headers=headers)
    shown = {
        "wait_seconds": wait_seconds,
        "username": request.POST.get("username", "")[:LONGEST_NAME],
        "next": request.POST.get("next", ""),
    }
    page = render(request, "webui/login.html", shown, status=429)
    for name, value in {**headers, "Content-Security-Policy": CONTENT_SECURITY_POLICY}.items():
        page[name] = value
    return page
