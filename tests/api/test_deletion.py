"""A deletion that waits is of the topic that was there when it was asked for."""

import pytest

from scalable.api.hub import Hub
from scalable.domain.names import TopicName
from scalable.services import topics
from tests.api.rest import NAMESPACE, Rest

NAME = TopicName("public", "default", "reborn")
PATH = f"{NAMESPACE}/reborn"


@pytest.mark.parametrize("reborn", [True, False])
def test_a_deletion_that_waited_leaves_the_next_topic_of_the_name(
    rest: Rest, monkeypatch: pytest.MonkeyPatch, reborn: bool
) -> None:
    rest.call("PUT", PATH)
    assert rest.call("POST", f"{PATH}/split/0", Prefer="respond-async").status_code == 202

    def meanwhile(*_: object, **__: object) -> None:
        topics.delete_topic(name=NAME, force=True, actor="somebody else")
        if reborn:
            topics.create_topic(name=NAME, actor="somebody else")

    monkeypatch.setattr(Hub, "wait_blocking", meanwhile)
    code = "topic_deleted" if reborn else "topic_not_found"
    assert rest.refused("DELETE", PATH) == (404, code)
    assert rest.call("GET", PATH).status_code == (200 if reborn else 404)
