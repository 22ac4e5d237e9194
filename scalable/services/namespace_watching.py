"""What watchers of a namespace see (PR-25648): the list of its topics, and what became of it since."""

from collections.abc import Mapping

from scalable.domain.errors import NamespaceNotFound
from scalable.store import topic_lists as store
from scalable.store.topic_lists import Change, Changes, Position, TopicList

__all__ = ["Change", "Changes", "Position", "TopicList", "changes_since", "topic_list", "trim_changes"]


def topic_list(*, tenant: str, namespace: str, filters: Mapping[str, str]) -> TopicList:
    """The topics of a namespace that have all of these properties; raises NamespaceNotFound."""
    found = store.read_list(tenant=tenant, namespace=namespace, filters=filters)
    if found is None:
        raise NamespaceNotFound(namespace=f"{tenant}/{namespace}")
    return found


def changes_since(*, position: Position) -> Changes | None:
    """What changed in a namespace since an earlier look; None when the list must be read again."""
    return store.read_changes(position)


def trim_changes() -> int:
    """Forget changes that every watcher has seen long ago, a bounded number of them, and count them."""
    return store.trim_changes()
