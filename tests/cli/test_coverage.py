"""Whatever `Admin` can do a command does, or it is said here why none does."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from types import ModuleType

import click
import pytest

from scalable.cli import command
from scalable.client import Admin

WITHOUT_COMMAND = {
    "close": "ends the client",
    "merge_pair": "merge-segments does it, for two segments and for more",
    "read_batches": "gives encoded batches; consume and peek read messages",
    "report_loads": "the load pipeline writes them, as the system role",
    "report_tiles": "the load pipeline writes them, as the system role",
    "ensure_segment": "nodes ask it of one another, as the system role",
    "terminate_segment": "nodes ask it of one another, as the system role",
    "delete_segment": "nodes ask it of one another, as the system role",
    "ensure_segment_cursor": "nodes ask it of one another, as the system role",
    "delete_segment_cursor": "nodes ask it of one another, as the system role",
    "segment_backlog": "nodes ask it of one another, as the system role",
    "seek_segment": "nodes ask it of one another, as the system role",
    "clear_segment_backlog": "nodes ask it of one another, as the system role",
}


def _asked_by(module: ModuleType) -> set[str]:
    """Name the attributes of `admin` that a module of commands reads."""
    return {
        node.attr
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "admin"
    }


def test_each_operation_has_a_command_or_a_reason() -> None:
    operations = {name for name, _ in inspect.getmembers(Admin, inspect.isfunction) if name[0] != "_"}
    bound = set().union(*(_asked_by(module) for module in command.MODULES))
    assert operations - bound == WITHOUT_COMMAND.keys()
    assert bound <= operations


def _leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    for name, each in group.commands.items():
        if isinstance(each, click.Group):
            yield from _leaves(each, (*path, name))
        else:
            yield " ".join((*path, name)), each


LEAVES = dict(_leaves(command.command))


@pytest.mark.parametrize("name", LEAVES)
def test_each_option_takes_its_own_default(name: str) -> None:
    """A choice whose default is none of its values refuses the command to whoever leaves the option out."""
    context = click.Context(LEAVES[name])
    for each in LEAVES[name].params:
        default = each.get_default(context)
        if isinstance(default, str | int | float):
            each.type_cast_value(context, default)


def test_each_module_of_commands_is_bound() -> None:
    for module in command.MODULES:
        assert module.COMMANDS
        for each in module.COMMANDS:
            assert command.command.commands[each.name or ""] is each
