"""Scalable topics switched off: none of their doors is there, and what they hold is kept."""

from __future__ import annotations

import json

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.processes import LiveNode, ProcessFactory

TOPIC = "/admin/v2/scalable/public/default/kept"


def ask(node: LiveNode, method: str, path: str) -> tuple[int, str]:
    answer = httpx.request(method, node.url + path, headers=node.headers, trust_env=False)
    return answer.status_code, answer.json().get("code", "") if answer.content[:1] == b"{" else ""


async def knock(node: LiveNode, path: str) -> tuple[int, str]:
    """How a handshake is refused."""
    address = f"{node.socket_url}/ws/v2/scalable/{path}"
    with pytest.raises(InvalidStatus) as refused:
        await connect(address, additional_headers=node.headers, proxy=None)
    answer = refused.value.response
    return answer.status_code, json.loads(answer.body or b"{}").get("code", "")


async def test_the_whole_feature_can_be_taken_away_and_its_data_stays(processes: ProcessFactory) -> None:
    node = processes.node()
    assert ask(node, "PUT", TOPIC)[0] == 204
    without = processes.node(SCALABLE_TOPICS_ENABLED="false")
    for method, path in (
        ("GET", TOPIC),
        ("PUT", f"{TOPIC}-2"),
        ("GET", f"{TOPIC}/stats"),
        ("GET", "/admin/v2/scalable/public/default"),
        ("GET", "/admin/v2/namespaces/public/default/scalableTopicAutoScalePolicy"),
        ("POST", "/admin/v2/namespaces/public/default/lifetimes"),
        ("POST", "/admin/v2/segments/public/default/kept/0000-ffff-0/terminate"),
    ):
        assert ask(without, method, path) == (404, "unknown_path"), path
    for end in ("", "?force=true"):
        refused = ask(without, "DELETE", "/admin/v2/namespaces/public/default" + end)
        assert refused == (412, "topics_switched_off")
    assert ask(without, "PUT", "/admin/v2/namespaces/public/empty")[0] == 204
    assert ask(without, "DELETE", "/admin/v2/namespaces/public/empty?force=true")[0] == 204
    assert ask(without, "GET", "/admin/v2/nodes")[0] == 200
    assert await knock(without, "lookup/public/default/kept") == (404, "unknown_path")
    assert await knock(node, "elsewhere/public/default/kept") == (404, "unknown_path")
    assert ask(node, "GET", TOPIC)[0] == 200
