"""A topic's properties, by which lists and watches choose."""

from scalable import announce
from tests.api.rest import NAMESPACE, Rest

PATH = f"{NAMESPACE}/tagged/properties"


def test_properties_are_replaced_as_a_whole(rest: Rest) -> None:
    rest.call("PUT", f"{NAMESPACE}/tagged", {"owner": "ada", "tier": "1"})
    assert rest.json(PATH) == {"owner": "ada", "tier": "1"}
    assert rest.call("PUT", PATH, {"owner": "bob"}).status_code == 204
    assert rest.json(PATH) == rest.json(f"{NAMESPACE}/tagged")["properties"] == {"owner": "bob"}
    assert rest.json(f"{NAMESPACE}?property=owner=bob") == ["topic://public/default/tagged"]
    assert rest.json(f"{NAMESPACE}?property=tier=1") == []


def test_a_change_of_properties_is_told_and_raises_the_revision(
    rest: Rest, django_capture_on_commit_callbacks: object
) -> None:
    rest.call("PUT", f"{NAMESPACE}/tagged")
    before = rest.json(f"{NAMESPACE}/tagged")
    heard: list[announce.Notice] = []
    announce.listen(heard.append)
    try:
        with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
            rest.call("PUT", PATH, {"owner": "ada"})
    finally:
        announce.silence(heard.append)
    after = rest.json(f"{NAMESPACE}/tagged")
    assert after["revision"] == before["revision"] + 1
    name, incarnation = before["name"], before["incarnation"]
    assert announce.TopicChanged(incarnation, name, after["revision"]) in heard
    assert announce.NamespaceChanged("public", "default") in heard


def test_what_is_refused_changes_nothing(rest: Rest) -> None:
    assert rest.refused("PUT", PATH, {"owner": "ada"}) == (404, "topic_not_found")
    rest.call("PUT", f"{NAMESPACE}/tagged", {"owner": "ada"})
    for body in ({"": "x"}, {"owner": 1}, ["owner"], {"owner": "a" * 4097}, b"{", None):
        assert rest.refused("PUT", PATH, body) == (400, "unreadable_body")
    assert rest.json(PATH) == {"owner": "ada"}
