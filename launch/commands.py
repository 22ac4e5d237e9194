"""What `./run` does once the environment stands: `up`, `demo`, `soak`, `replay`, `test`, `check`, `bench`."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn, TextIO

from launch import check, demo, soak
from launch.addresses import HERE, Addresses, addresses_of
from launch.data_directory import DataDirectory, RunningServices
from launch.instance import Instance
from launch.ports import HOST
from launch.prepare import PASSWORD_FILE, SUPERUSER
from launch.process import ROOT, LaunchError
from launch.supervisor import Report
from launch.tls import Tls
from replay import command

FAST_TESTS = ("tests/domain", "tests/wire", "tests/store", "tests/services")
DEFAULT_DATA = ROOT / ".data"
MOST_OF_A_KIND = 16
"""Nodes or workers of one instance: more than that is no matter of one machine."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def reporter(stream: TextIO) -> Report:
    """Return a function that prints a line with the seconds since now."""
    begun = time.monotonic()

    def report(line: str) -> None:
        print(f"[{time.monotonic() - begun:5.1f} s] {line}", file=stream, flush=True)

    return report


def interrupt_by_signal() -> None:
    """Turn the first signal to stop into KeyboardInterrupt; later ones do not disturb the stopping."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in STOP_SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    for each in STOP_SIGNALS:
        signal.signal(each, interrupt)


def _port(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port between 1 and 65535")
    return number


def _folder(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError("it names no folder")
    return Path(text)


def _few(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= number <= MOST_OF_A_KIND:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number between 1 and {MOST_OF_A_KIND}")
    return number


def _instance_options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    data = Path(os.environ.get("SCALABLE_DATA_DIR") or DEFAULT_DATA)
    options.add_argument(
        "--data-dir", type=_folder, metavar="D", default=data, help="default: SCALABLE_DATA_DIR, or .data"
    )
    options.add_argument(
        "--port", type=_port, metavar="N", help="port of the (first) web node; default: 8080, or free"
    )
    options.add_argument("--verbose", action="store_true", help="show the processes' logs too")
    return options


def up(argv: Sequence[str]) -> int:
    """Start all services, run the demo unless told not to, and stay until Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="./run up", parents=[_instance_options()], description=up.__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "--nodes", type=_few, metavar="N", default=1, help="web nodes, each at a port of its own; default: 1"
    )
    parser.add_argument("--workers", type=_few, metavar="N", default=1, help="Celery workers; default: 1")
    parser.add_argument("--no-demo", action="store_true", help="only start the services")
    parser.add_argument(
        "--no-spark", action="store_true", help="without the load reporter; implies --no-demo"
    )
    _add_address_options(parser)
    _add_tls_options(parser)
    options = parser.parse_args(argv)
    addresses = addresses_of(options.host, options.url)
    tls = _tls_of(options, addresses)
    interrupt_by_signal()
    report = reporter(sys.stdout)
    if addresses.are_open(tls):
        report(f"warning: on {addresses.host} tokens and passwords can be read on their way (docs/access.md)")
    with Instance(
        options.data_dir,
        port=options.port,
        report=report,
        nodes=options.nodes,
        workers=options.workers,
        with_spark=not options.no_spark,
        echo=options.verbose,
        tls=tls,
        addresses=addresses,
    ) as instance:
        try:
            without_demo = options.no_demo or options.no_spark or not instance.can_change_topics
            _serve(instance, with_demo=not without_demo)
        except KeyboardInterrupt:
            report("stopping")
    return 0


def _add_tls_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("encryption", "PEM files; the key must be this account's alone")
    group.add_argument("--tls-cert", type=Path, metavar="F", help="certificate of the nodes, with its chain")
    group.add_argument("--tls-key", type=Path, metavar="F", help="its key")
    group.add_argument(
        "--tls-client-ca",
        type=Path,
        metavar="F",
        help="let in only whom these authorities signed (the certificate of the nodes among them)",
    )


def _add_address_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("addresses")
    group.add_argument(
        "--host", metavar="H", default=HOST, help=f"what nodes listen on; default: {HOST}, this machine alone"
    )
    group.add_argument(
        "--url",
        metavar="URL",
        action="append",
        default=[],
        help="under which others reach the node, as https://topics.example.com; once for each of several",
    )


def _tls_of(options: argparse.Namespace, addresses: Addresses = HERE) -> Tls | None:
    """The encryption that was asked for, checked; raises LaunchError."""
    given = (options.tls_cert, options.tls_key)
    if not any((*given, options.tls_client_ca)):
        return None
    if not all(given):
        raise LaunchError("encryption wants both --tls-cert and --tls-key")
    client_ca: Path | None = options.tls_client_ca
    tls = Tls(given[0].resolve(), given[1].resolve(), client_ca.resolve() if client_ca else None)
    tls.check(addresses.near)
    return tls


def _serve(instance: Instance, *, with_demo: bool) -> NoReturn:
    _greet(instance.running, new_password=instance.new_password)
    if with_demo:
        demo.main([], instance.running)
        _greet(instance.running, new_password=None)
    while True:
        signal.pause()


def _greet(services: RunningServices, *, new_password: str | None) -> None:
    directory = services.data_directory
    password = new_password or f"(in {directory / PASSWORD_FILE}, unless you changed it)"
    url, *more = services.shown
    others = "".join(f"  and at      {each}/\n" for each in more)
    print(
        f"\n  Dashboard   {url}/\n{others}"
        f"  Login       {SUPERUSER}   password {password}\n"
        f"  REST        {url}/docs   token in {directory / 'admin-token'}\n"
        f"  Logs        {directory / 'logs'}\n"
        "  Stop        Ctrl-C\n",
        flush=True,
    )


def run_demo(argv: Sequence[str]) -> int:
    """Run the demo in the instance of the data directory; start one for its time where none runs."""
    parser = argparse.ArgumentParser(
        prog="./run demo",
        usage=demo.USAGE,
        parents=[_instance_options()],
        add_help=False,
        allow_abbrev=False,
    )
    _add_tls_options(parser)
    options, rest = parser.parse_known_args(argv)
    demo.parse(rest)  # before anything is started for it
    tls = _tls_of(options)
    running = DataDirectory(options.data_dir).running()
    if running is not None:
        return demo.main(rest, running)
    interrupt_by_signal()
    report = reporter(sys.stderr)
    with Instance(
        options.data_dir, port=options.port, report=report, echo=options.verbose, tls=tls
    ) as instance:
        return demo.main(rest, instance.running)


def run_soak(argv: Sequence[str]) -> int:
    """Kill everything at random while clients work, in an instance of its own."""
    options = soak.parse(argv)
    interrupt_by_signal()
    return soak.run(options, reporter(sys.stderr))


def test(argv: Sequence[str]) -> NoReturn:
    """Run the tests; `--fast` runs only those of the inner layers, anything else goes to pytest.

    Without further words several processes share the test files: one more than two cores could keep busy,
    for most tests wait for other processes most of the time, but for those of the inner layers.
    """
    is_fast = "--fast" in argv
    arguments = [argument for argument in argv if argument != "--fast"]
    if not arguments and (os.cpu_count() or 1) > 1:
        arguments = ["-n", "2" if is_fast else "3", "--dist", "loadfile"]
    if is_fast:
        arguments = ["-m", "not slow and not spark and not browser", *FAST_TESTS, *arguments]
    os.environ.pop("DJANGO_SETTINGS_MODULE", None)
    # Tests start many hundred processes, each of which would compile the product for itself.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    _become("pytest", arguments)


def bench(argv: Sequence[str]) -> NoReturn:
    """Measure the rows of the table of benchmarks; without numbers all of them."""
    _become("bench", argv)


def _become(module: str, arguments: Sequence[str]) -> NoReturn:
    os.chdir(ROOT)
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "up": up,
    "demo": run_demo,
    "soak": run_soak,
    "replay": command.main,
    "test": test,
    "check": check.main,
    "bench": bench,
}


def main(argv: Sequence[str]) -> int:
    """Run one command; a failure that the user can do something about is one line and a hint."""
    name, *rest = argv or ["up"]
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # as while this was imported
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return COMMANDS[name](rest)
    except LaunchError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
