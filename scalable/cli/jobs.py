"""Batch jobs on Spark: start, list, follow, cancel, and fetch what they wrote (superusers only)."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from scalable.cli.moments import as_text
from scalable.cli.session import Session, with_admin
from scalable.cli.values import DAY, NAMESPACE, read_json
from scalable.client import Admin
from scalable.domain.jobs import UNFINISHED, JobKind, JobState

COLUMNS = ("created", "jobId", "kind", "state", "tasks", "actor", "error")
POLICY_COLUMNS = ("policy", "topics", "violation_percent", "segments_over_clairvoyant", "actions")
POLL_SECONDS = 0.5
FAILED = 1
Command = TypeVar("Command", bound=Callable[..., Any])

wait_option = click.option(
    "--wait/--no-wait", default=True, help="Follow it to its end, or print it at once."
)
job_argument = click.argument("job_id")


@click.group()
def jobs() -> None:
    """Batch jobs on Spark: daily report, compaction, policy replay."""


@jobs.command("daily-report")
@click.option("--day", type=DAY, help="UTC; without it yesterday.")
@click.option("--namespace", type=NAMESPACE, help="Without it all topics.")
@click.option("--segment-rate", type=float, help="Messages/s that one segment can take.")
@wait_option
@with_admin
def daily_report(session: Session, admin: Admin, /, wait: bool, **options: Any) -> int:
    """Report hot segments, hot keys, skew, trend and waste of a day."""
    return _start(session, admin, JobKind.DAILY_REPORT, options, wait)


@jobs.command()
@click.option("--before", type=DAY, help="UTC; without it today.")
@wait_option
@with_admin
def compact(session: Session, admin: Admin, /, wait: bool, **options: Any) -> int:
    """Make one file of each day of the history that is over."""
    return _start(session, admin, JobKind.COMPACT, options, wait)


@jobs.command("policy-replay")
@click.option("--day", type=DAY, help="UTC; without it yesterday.")
@click.option("--last-day", type=DAY, help="Without it the same day.")
@click.option("--namespace", type=NAMESPACE, help="Without it all topics.")
@click.option("--profile", "profiles", multiple=True, help="A rule; may be repeated. Without any all.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON with fields of a policy, shown by the file's name; may be repeated.",
)
@click.option("--capacity", type=float, help="Messages/s that one segment can take.")
@click.option("--max-segments", type=int, help="Segments at most, whatever the policy.")
@click.option("--warm-up-seconds", type=float, help="So long at the start nothing is counted.")
@wait_option
@with_admin
def policy_replay(
    session: Session, admin: Admin, /, wait: bool, policies: tuple[Path, ...], **options: Any
) -> int:
    """Tell what other policies would have done with the load of a day."""
    bodies = {path.stem: _read_policy(path) for path in policies}
    if len(bodies) < len(policies):
        raise click.UsageError("two files have the same name, by which results are told apart")
    return _start(session, admin, JobKind.POLICY_REPLAY, {**options, "policies": bodies}, wait)


@jobs.command("list")
@click.option("--kind", type=click.Choice([kind.value for kind in JobKind]))
@click.option("--state", type=click.Choice([state.value for state in JobState]))
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True)
@with_admin
def list_jobs(session: Session, admin: Admin, /, kind: str | None, state: str | None, limit: int) -> None:
    """List jobs, the newest first."""
    rows = [_row(job) for job in admin.jobs(kind=kind or "", state=state or "", limit=limit)]
    session.output.rows(rows, COLUMNS, empty="no jobs")


@jobs.command()
@job_argument
@with_admin
def get(session: Session, admin: Admin, /, job_id: str) -> None:
    """Show a job: state, progress, result."""
    session.output.document(admin.job(job_id))


@jobs.command()
@job_argument
@with_admin
def watch(session: Session, admin: Admin, /, job_id: str) -> int:
    """Follow a job to its end; the exit status is 0 when it succeeded."""
    return _follow(session, admin, admin.job(job_id))


@jobs.command()
@job_argument
@with_admin
def cancel(session: Session, admin: Admin, /, job_id: str) -> None:
    """Cancel a job that is not over."""
    session.output.document(admin.cancel_job(job_id))


@jobs.command()
@job_argument
@click.argument("file", default="")
@click.option(
    "-f", "--file", "path", type=click.Path(path_type=Path), help="Where to; without it the same name."
)
@with_admin
def download(session: Session, admin: Admin, /, job_id: str, file: str, path: Path | None) -> None:
    """Fetch a file of a job's result; without a name the first, which is the report."""
    name = file or next(iter((admin.job(job_id)["result"] or {}).get("files", ())), "")
    if not name:
        raise click.UsageError("the job has no files (yet)")
    target = path or Path(name)
    target.write_bytes(admin.job_file(job_id, name))
    session.output.done(f"written: {target}", file=name, path=str(target))


def _row(job: dict[str, Any]) -> dict[str, Any]:
    tasks = job["tasks"]
    return {**job, "created": as_text(job["createdAtMs"]), "tasks": f"{tasks['done']}/{tasks['total']}"}


def _read_policy(path: Path) -> Any:
    try:
        return read_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{path} cannot be read: {error}") from error


def _start(session: Session, admin: Admin, kind: JobKind, options: dict[str, Any], wait: bool) -> int:
    said = {name: value for name, value in options.items() if value not in (None, (), {})}
    given = {_wire(name): _plain(value) for name, value in said.items()}
    job = admin.start_job(kind.value, given)
    if wait:
        return _follow(session, admin, job)
    session.output.document(job)
    return 0


def _wire(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.title() for word in rest)


def _plain(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    return list(value) if isinstance(value, tuple) else value


def _follow(session: Session, admin: Admin, job: dict[str, Any]) -> int:
    """Show stages and tasks until the job is over; whoever interrupts that ends the looking, not the job."""
    console = Console(stderr=True, quiet=session.output.as_json)
    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*shown, console=console) as progress:
        bars = {name: progress.add_task(name, total=None) for name in ("stages", "tasks")}
        while True:
            for name, bar in bars.items():
                done, total = job[name]["done"], job[name]["total"] or None
                text = f"{job['kind']} {job['state'].lower()}: {name}"
                progress.update(bar, completed=done, total=total, description=text)
            if job["state"] not in UNFINISHED:
                break
            time.sleep(POLL_SECONDS)
            job = admin.job(job["jobId"])
    _show_end(session, job)
    return 0 if job["state"] == JobState.SUCCEEDED else FAILED


def _show_end(session: Session, job: dict[str, Any]) -> None:
    policies = (job["result"] or {}).get("policies")
    if session.output.as_json or not policies:
        session.output.document(job)
    else:
        session.output.rows(policies, POLICY_COLUMNS, empty="no topics")
        session.output.note(f"{job['state']}: scalable-topics jobs download {job['jobId']}")


COMMANDS = (jobs,)
