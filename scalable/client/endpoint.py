"""The nodes that a client may speak to, which of them it speaks to now, and the token that it shows."""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Sequence
from urllib.parse import quote, urlsplit, urlunsplit

from scalable.domain.names import NamespaceName, TopicName
from scalable.wire.tls import environment_context

SOCKET_ROOT = "/ws/v2/scalable"

Urls = str | Sequence[str]
"""The URL of a node, or of several: a sequence, or one text with commas between them."""


class Endpoint:
    """The nodes and a bearer token, which never enters a URL.

    Any node serves any request. `url` is the one in use; a client tells by `failed` that it does not answer,
    and the next one is in use from then on. Those who were given the same endpoint move on together.
    """

    def __init__(self, url: Urls, token: str, *, tls: ssl.SSLContext | None = None) -> None:
        """Take the nodes in their order of preference.

        Raises ValueError when one is no http(s) URL, or the token has characters that no token has.

        Encrypted nodes are met with `tls`, else as the environment says: `SCALABLE_TLS_CA` is trusted in
        place of what the system trusts, and `SCALABLE_TLS_CERT` with `SCALABLE_TLS_KEY` is shown. Raises
        OSError when such a file cannot be read.
        """
        self.urls = _parsed(url)
        self.token = _checked(token)
        self.tls = tls or (
            environment_context(os.environ) if any("https:" in each for each in self.urls) else None
        )
        self._used = 0

    def __repr__(self) -> str:
        return f"Endpoint({', '.join(self.urls)})"

    @property
    def url(self) -> str:
        """Give the node in use."""
        return self.urls[self._used]

    @property
    def headers(self) -> dict[str, str]:
        """Give the header that carries the token."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    @property
    def is_loopback(self) -> bool:
        """Tell whether the node runs on this machine, where no proxy stands between."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def failed(self, url: str) -> None:
        """Note that a node does not answer; the next one is used, unless somebody moved on already."""
        if self.url == url:
            self._used = (self._used + 1) % len(self.urls)

    def at(self, url: str | None) -> Endpoint:
        """Give the same caller at one node, with the others to fall back to; at no node in particular: this.

        The answer moves on by itself, so a leader that died does not change which node others use. A node
        that does not know who leads says so by an empty address, and one that has none by what is none.
        """
        first = (url or "").strip().rstrip("/")
        if not _is_of_a_node(first):
            return self
        return Endpoint((first, *(known for known in self.urls if known != first)), self.token, tls=self.tls)

    def socket_url(self, kind: str, about: TopicName | NamespaceName, *more: str) -> str:
        """Give the address of a socket, as in `ws://host/ws/v2/scalable/lookup/tenant/namespace/topic`."""
        parts = urlsplit(self.url)
        names = (kind, *about.path.split("/"), *more)
        path = "/".join(quote(part, safe="") for part in names)
        scheme = "wss" if parts.scheme == "https" else "ws"
        return urlunsplit((scheme, parts.netloc, f"{parts.path.rstrip('/')}{SOCKET_ROOT}/{path}", "", ""))


def _parsed(url: Urls) -> tuple[str, ...]:
    given = url.split(",") if isinstance(url, str) else url
    urls = tuple(dict.fromkeys(each.strip().rstrip("/") for each in given))
    for each in urls or ("",):
        # A user would take the place of the token; and is shown to nobody.
        if "@" in "".join(each.split("/")[:3]):
            raise ValueError("the URL of a node has a user or password; give a token")
        if not _is_of_a_node(each):
            raise ValueError(f"{each!r} is not the http(s) URL of a node")
    return urls


def _is_of_a_node(url: str) -> bool:
    try:
        parts = urlsplit(url)
        more = parts.query or parts.fragment
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and not more
    except ValueError:  # brackets or a port that cannot be
        return False


def _checked(token: str) -> str:
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ValueError("the token has characters that no token has")  # which is shown to nobody
    return token
