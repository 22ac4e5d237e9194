"""Where the web nodes of an instance listen, and under which addresses everybody else reaches them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from django.core.exceptions import ImproperlyConfigured

from launch.ports import HOST, is_free
from launch.process import LaunchError
from launch.tls import LOOPBACK, Tls
from scalable.environment import check_site

EVERYWHERE = {"0.0.0.0": HOST, "::": "::1"}
"""Addresses that stand for all of this machine, and how this machine itself reaches them."""


@dataclass(frozen=True)
class Addresses:
    """`host` is what the nodes listen on; `urls` name them to others, one for each; none: as they listen."""

    host: str = HOST
    urls: tuple[str, ...] = ()

    @property
    def near(self) -> str:
        """Where this machine reaches what listens on `host`."""
        return EVERYWHERE.get(self.host, self.host)

    def local_url(self, port: int, tls: Tls | None = None) -> str:
        """Give the address under which the instance's own processes reach a node. Raises LaunchError."""
        name = tls.name_for(self.near) if tls else self.near
        scheme = "https" if tls else "http"
        return f"{scheme}://[{name}]:{port}" if ":" in name else f"{scheme}://{name}:{port}"

    def public_urls(self, local: Sequence[str]) -> tuple[str, ...]:
        """Give the addresses under which others reach the nodes, which are at `local` for this machine."""
        return self.urls or tuple(local)

    def ends_encryption_before(self, tls: Tls | None) -> bool:
        """Tell whether others reach unencrypted nodes encrypted, so that a proxy stands before them."""
        return tls is None and any(url.startswith("https:") for url in self.urls)

    def are_open(self, tls: Tls | None) -> bool:
        """Tell whether other machines could reach the nodes, and what they send could be read on its way."""
        return tls is None and self.host not in {"localhost", *LOOPBACK}

    def check(self, *, nodes: int) -> None:
        """Raise LaunchError when nodes could not listen there, or be told apart."""
        if not is_free(0, self.host):
            raise LaunchError(
                f"nodes cannot listen on {self.host}", "give an address of this machine to --host"
            )
        if self.host in EVERYWHERE and not self.urls:
            raise LaunchError(
                f"{self.host} is no address that others can reach",
                "name the one under which they reach the node with --url",
            )
        for url in self.urls:
            try:
                check_site("--url", url)
            except ImproperlyConfigured as error:
                raise LaunchError(str(error)) from None
        if self.urls and len(set(self.urls)) != nodes:
            raise LaunchError(
                f"{nodes} nodes want as many different addresses, not {len(set(self.urls))}",
                "give --url once for each: whoever leads a topic is reached at an address of its own",
            )


HERE = Addresses()
"""Nodes that this machine alone can reach."""


def addresses_of(host: str, urls: Sequence[str]) -> Addresses:
    """Give what options say, or the setting of one node."""
    given = list(urls) or [os.environ.get("SCALABLE_NODE_URL", "")]
    return Addresses(host, tuple(url.rstrip("/") for url in given if url))
