"""The command `scalable-topics` and how it ends: 0 done, 1 refused, 2 usage, 3 no node, 4 no access."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import click

from scalable.cli import (
    audit,
    consume,
    decisions,
    find,
    jobs,
    layout,
    lifetimes,
    namespaces,
    nodes,
    operations,
    permissions,
    policies,
    produce,
    properties,
    reshape,
    subscriptions,
    tenants,
    tokens,
    topics,
    watch,
    watch_topics,
)
from scalable.cli.output import Output, report, report_mistake
from scalable.cli.session import DEFAULT_URL, Session, default_config_file, find_token, read_config
from scalable.cli.statuses import INTERRUPTED
from scalable.cli.streams import OutputFailed
from scalable.cli.values import TIMEOUT, is_text
from scalable.client import ConnectionLost
from scalable.domain.errors import ScalableError

PROGRAM = "scalable-topics"
MODULES = (
    topics,
    find,
    properties,
    layout,
    reshape,
    operations,
    decisions,
    policies,
    lifetimes,
    subscriptions,
    tenants,
    namespaces,
    permissions,
    tokens,
    audit,
    nodes,
    jobs,
    produce,
    consume,
    watch,
    watch_topics,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--url", envvar="SCALABLE_URL", help="Address of a node, or several with commas.")
@click.option("--token", help="Bearer token; better by SCALABLE_TOKEN or a file.")
@click.option("--token-file", help="File that holds the token alone (SCALABLE_TOKEN_FILE).")
@click.option("--config", "config_file", envvar="SCALABLE_CONFIG", help="TOML file with url and token_file.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--timeout", "timeout_seconds", type=TIMEOUT, default=40.0, show_default=True, help="Seconds.")
@click.version_option(package_name=PROGRAM, prog_name=PROGRAM)
@click.pass_context
def command(
    context: click.Context,
    url: str | None,
    token: str | None,
    token_file: str | None,
    config_file: str | None,
    output: str,
    timeout_seconds: float,
) -> None:
    """Manage scalable topics, and send, read and watch them.

    Topics are tenant/namespace/name. Every command prints JSON with `-o json` (before the command's name).
    """
    config = read_config(Path(config_file or default_config_file()), required=config_file is not None)
    context.obj = Session(
        url=url or config.get("url") or DEFAULT_URL,
        token=find_token(token, token_file, config),
        output=Output(as_json=output == "json"),
        timeout_seconds=timeout_seconds,
    )


for module in MODULES:
    for each in module.COMMANDS:
        command.add_command(each)


def run(arguments: Sequence[str]) -> int:
    """Run the command and give its exit status."""
    as_json = _wants_json(arguments)
    if as_json:  # else the client's log stands on the standard error, among the objects
        logging.getLogger("scalable.client").addHandler(logging.NullHandler())
    try:
        _check_text(arguments)
        status = command.main(list(arguments), prog_name=PROGRAM, standalone_mode=False)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        return report_mistake(error, as_json=as_json)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (ScalableError, ConnectionLost) as error:
        return report(error, as_json=as_json)
    except TimeoutError:  # before OSError, of which it is one
        return report(ConnectionLost(1006, "no answer in time"), as_json=as_json)
    except OutputFailed as error:
        problem = click.ClickException(f"the output cannot be written: {error.strerror}")
        return report_mistake(problem, as_json=as_json)
    except OSError as error:
        return report_mistake(click.ClickException(str(error)), as_json=as_json)
    return status if isinstance(status, int) else 0


def _check_text(arguments: Sequence[str]) -> None:
    """Refuse what no request could carry; raises UsageError."""
    for number, argument in enumerate(arguments, start=1):
        if not is_text(argument):
            raise click.UsageError(f"word {number} of the command line is no UTF-8: {argument!r}")


def _wants_json(arguments: Sequence[str]) -> bool:
    """Tell it before the options are read: a mistake among them is reported in the same form."""
    return not {"--output=json", "-ojson"}.isdisjoint(arguments) or any(
        flag in ("-o", "--output") and value == "json" for flag, value in pairwise(arguments)
    )
