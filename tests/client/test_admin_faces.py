"""The asynchronous face of the admin client has the operations of the other one, and no more."""

import inspect

from scalable.client import Admin, AsyncAdmin


def operations(face: type) -> set[str]:
    """What a face offers, but for its end."""
    return {name for name, _ in inspect.getmembers(face, callable) if not name.startswith("_")} - {"close"}


def test_both_faces_have_the_same_operations() -> None:
    assert operations(AsyncAdmin) == operations(Admin)


def test_an_operation_is_told_in_the_same_words() -> None:
    for name in operations(Admin):
        assert getattr(AsyncAdmin, name).__doc__ == getattr(Admin, name).__doc__
        assert inspect.iscoroutinefunction(getattr(AsyncAdmin, name))
