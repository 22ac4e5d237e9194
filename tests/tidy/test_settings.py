"""`docs/settings.md` names every setting that is read from the environment, with its default, and each is
read: what makes no sense ends the process, and is named."""

import ast
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from scalable import settings
from scalable.domain.broker_settings import CHANGE_THRESHOLD, SETTINGS
from scalable.environment import READ_BY_PROGRAMS
from spark.withheld import WITHHELD
from tests.tidy.sources import ROOT

FILE = ROOT / "scalable" / "settings.py"
READERS = {
    *("text", "number", "whole", "flag", "choice", "names", "networks", "origins", "site", "server"),
    *("secret", "public_key", "file"),
}
WITH_FILES = {"secret", "public_key"}
FREE_TEXTS = {"SCALABLE_DATA_DIR", "SPARK_MASTER"}
UNREADABLE = {
    "flag": ("ture", "2", "-", "null"),
    "number": ("fast", "nan", "inf", "-1", "1s", "1e18"),
    "whole": ("many", "1.5", "-1", "1e3", "5MB", "9" * 20),
    "choice": ("JSONL", "loud"),
    "networks": (
        "proxy",
        "10.1.0.0/33",
        "10.1.0.7/16",
        "10.1.0",
        "*, 10.1.0.7",
        "127.0.0.1:80",
        "10.1.0.7 ::1",
    ),
    "origins": ("topics.example.com", "https://a/path", "https://good.example, bad"),
    "site": ("127.0.0.1:8080", "ftp://host", "https://", "https://a:x", "https://a/b", "https://u@a"),
    "server": ("localhost:5432", "mysql://host/name", "http://host"),
    "public_key": ("not a key", "-----BEGIN PUBLIC KEY-----"),
    "file": ("missing.pem",),
}
TOLD_IN_WORDS = {
    *("DATABASE_URL", "SCALABLE_SEGMENTS_DATABASE_URL", "SCALABLE_DATA_DIR", "SCALABLE_SECURE_COOKIES"),
    *("SCALABLE_REDIRECT_TO_HTTPS", "SCALABLE_HSTS_SECONDS"),
}
READ_ELSEWHERE = {"JAVA_HOME", *READ_BY_PROGRAMS}  # launch/java.py
NAME = re.compile(r"`([A-Z][A-Z_]+|scalableTopic[A-Za-z]+)`")


def reads() -> dict[str, tuple[str, ast.expr | None]]:
    """Give each name that `scalable/settings.py` reads, how, and the expression of its default."""
    found: dict[str, tuple[str, ast.expr | None]] = {}
    for node in ast.walk(ast.parse(FILE.read_text())):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="given"), attr=reader),
                args=[ast.Constant(value=str(name)), *rest],
            ):
                assert reader in READERS
                found[name] = (reader, rest[0] if rest else None)
                if reader in WITH_FILES:
                    found[f"{name}_FILE"] = (f"{reader}_file", None)
    return found


def documented() -> Iterator[tuple[str, str]]:
    """Yield each setting of the page with its default, as written there."""
    for line in (ROOT / "docs" / "settings.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        names = NAME.findall(cells[0]) if cells else []
        defaults = cells[1].replace("`", "").split(", ") if names else []
        yield from zip(names, defaults if len(defaults) == len(names) else [""] * len(names), strict=True)


def load(monkeypatch: pytest.MonkeyPatch, **environment: str) -> dict[str, object]:
    """Load the settings in this environment alone, as a process does that starts."""
    for name in (*reads(), *SETTINGS, CHANGE_THRESHOLD):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return runpy.run_path(str(FILE))


def test_every_setting_is_documented_and_no_other() -> None:
    names = [name for name, _ in documented()]
    assert len(names) == len(set(names))
    assert set(names) == set(reads()) | READ_ELSEWHERE


def test_defaults_are_those_of_the_page() -> None:
    page = dict(documented())
    for name, (_, expression) in reads().items():
        if expression is not None and name not in TOLD_IN_WORDS:
            value = eval(compile(ast.Expression(expression), name, "eval"), vars(settings))
            assert page[name] == (str(value).lower() if isinstance(value, bool) else str(value)), name


def test_every_text_is_free_for_a_reason() -> None:
    assert {name for name, (reader, _) in reads().items() if reader == "text"} == FREE_TEXTS


@pytest.mark.parametrize(
    "name", sorted(name for name, (reader, _) in reads().items() if reader in UNREADABLE)
)
def test_a_setting_that_cannot_be_read_ends_the_process_and_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in UNREADABLE[reads()[name][0]]:
        with pytest.raises(ImproperlyConfigured, match=name):
            load(monkeypatch, **{name: value})


@pytest.mark.parametrize("name", sorted({*SETTINGS, CHANGE_THRESHOLD}))
def test_so_does_a_default_of_policies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("ture", "fast", "5parsecs"):
        with pytest.raises(ImproperlyConfigured, match=name):
            load(monkeypatch, **{name: value})


def test_defaults_of_policies_that_contradict_each_other_are_all_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ImproperlyConfigured, match="MaxSegments, scalableTopicMinSegments cannot be read"):
        load(monkeypatch, scalableTopicMaxSegments="2", scalableTopicMinSegments="4")


@pytest.mark.parametrize(("heartbeat", "timeout"), [("10", "10"), ("30", ""), ("", "1.5")])
def test_nodes_that_would_count_as_dead_between_heartbeats_do_not_start(
    heartbeat: str, timeout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = "SCALABLE_NODE_HEARTBEAT_SECONDS=.* is not below SCALABLE_NODE_TIMEOUT_SECONDS"
    with pytest.raises(ImproperlyConfigured, match=named):
        load(
            monkeypatch,
            SCALABLE_NODE_HEARTBEAT_SECONDS=heartbeat,
            SCALABLE_NODE_TIMEOUT_SECONDS=timeout,
        )


def test_proxies_are_addresses_networks_or_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("*", "10.1.0.7", "10.1.0.0/16,::1", "fd00::/8, 127.0.0.1"):
        loaded = load(monkeypatch, SCALABLE_PROXY_ADDRESSES=value)["SCALABLE_PROXY_ADDRESSES"]
        assert loaded == [each.strip() for each in value.split(",")]


@pytest.mark.parametrize(
    "name", sorted(name for name, (reader, _) in reads().items() if reader.endswith("_file"))
)
def test_a_file_that_is_not_there_or_not_for_us_alone_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ImproperlyConfigured, match=f"{name}=.*No such file"):
        load(monkeypatch, **{name: str(tmp_path / "missing")})
    if reads()[name][0] == "secret_file":
        shared = tmp_path / "shared"
        shared.write_text("a secret")
        shared.chmod(0o640)
        with pytest.raises(ImproperlyConfigured, match=f"{name}=.*chmod 600"):
            load(monkeypatch, **{name: str(shared)})


@pytest.mark.parametrize(
    ("words", "value"), [(("1", "true", "Yes", "ON"), True), (("0", "false", "No", "OFF", ""), False)]
)
def test_flags_have_a_few_words(words: tuple[str, ...], value: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for word in words:
        assert load(monkeypatch, SCALABLE_READ_ONLY=word)["SCALABLE_READ_ONLY"] is value


def test_words_are_known_in_capitals_too(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(monkeypatch, SCALABLE_LOG_FORMAT="JSON", SCALABLE_LOG_LEVEL="warning")
    logging = loaded["LOGGING"]
    assert isinstance(logging, dict)
    assert (logging["handlers"]["console"]["formatter"], logging["root"]["level"]) == ("json", "WARNING")


def test_no_error_shows_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "SCALABLE_SEGMENTS_DATABASE_URL", "REDIS_URL"):
        with pytest.raises(ImproperlyConfigured, match=name) as caught:
            load(monkeypatch, **{name: "mysql://me:pa55word@host/name"})
        assert "pa55word" not in str(caught.value)


@pytest.mark.parametrize(
    ("frame", "message", "fits"),
    [(8, 7, True), (16, 7, True), (16, 8, False), (8, 8, False), (4, 3, True), (4, 4, False)],
)
def test_a_message_that_no_batch_and_no_frame_can_carry_is_not_allowed(
    frame: int, message: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {
        "SCALABLE_MAX_FRAME_BYTES": str(frame * settings.MIB),
        "SCALABLE_MAX_MESSAGE_BYTES": str(message * settings.MIB),
    }
    if fits:
        assert load(monkeypatch, **sizes)["SCALABLE_MAX_MESSAGE_BYTES"] == message * settings.MIB
    else:
        with pytest.raises(ImproperlyConfigured, match="SCALABLE_MAX_MESSAGE_BYTES"):
            load(monkeypatch, **sizes)


def test_no_frame_is_allowed_that_the_server_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    from uvicorn.config import Config

    most = Config("scalable.asgi:application").ws_max_size
    assert load(monkeypatch, SCALABLE_MAX_FRAME_BYTES=str(most))
    with pytest.raises(ImproperlyConfigured, match="SCALABLE_MAX_FRAME_BYTES"):
        load(monkeypatch, SCALABLE_MAX_FRAME_BYTES=str(most + 1))


def test_the_address_of_a_second_database_alone_chooses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch)["SCALABLE_SEGMENT_PORT"] == "embedded"
    chosen = load(monkeypatch, SCALABLE_SEGMENTS_DATABASE_URL="postgresql://host/messages")
    assert chosen["SCALABLE_SEGMENT_PORT"] == "external"
    databases = chosen["DATABASES"]
    assert isinstance(databases, dict)
    assert databases["segments"]["NAME"] == "messages"


def test_processes_on_spark_get_no_server_and_no_secret() -> None:
    hidden = {name for name, (reader, _) in reads().items() if reader in {"server", "secret", "secret_file"}}
    assert hidden < WITHHELD


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("SCALABLE_READONLY", "; was SCALABLE_READ_ONLY meant?"),
        ("SCALABLE_SUPERUSER_ROLE", "; was SCALABLE_SUPERUSER_ROLES meant?"),
        ("SCALABLE_TOKEN_PUBLICKEY_FILE", "; was SCALABLE_TOKEN_PUBLIC_KEY_FILE meant?"),
        ("scalable_secure_cookies", "; was SCALABLE_SECURE_COOKIES meant?"),
        ("SCALABLE_LOGIN_ATTEMPT", "; was SCALABLE_LOGIN_ATTEMPTS meant?"),
        ("scalableTopicAutoScaleEnabeld", "; was scalableTopicAutoScaleEnabled meant?"),
        ("scalableTopicMaxsegments", "; was scalableTopicMaxSegments meant?"),
        ("SCALABLETOPICMINSEGMENTS", "; was scalableTopicMinSegments meant?"),
        ("scalableTopicXyzzy", "; docs/settings.md has all settings"),
        ("SCALABLE_XYZZY", "; docs/settings.md has all settings"),
    ],
)
def test_a_name_that_is_no_setting_is_told_without_its_value(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (told,) = ignored(monkeypatch, **{name: "hunter2"})
    assert told.startswith(f"{name} is set, is no setting, and is ignored{said}")
    assert "hunter2" not in told


def test_no_setting_is_told_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own: this one has read settings before."""
    names = [name for name, _ in documented() if name.lower().startswith("scalable")]
    asked = "from scalable import settings; print(settings.SCALABLE_IGNORED_NAMES)"
    environment = {**os.environ, **dict.fromkeys(names, "")}
    run = subprocess.run(
        [sys.executable, "-c", asked], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"
    assert ignored(monkeypatch, OTHERS_URL="x", _SCALABLE_TOPICS_COMPLETE="bash_source") == []


@pytest.mark.parametrize(
    ("given", "enabled"),
    [
        ({}, True),
        ({"scalableTopicEnabled": "false"}, False),
        ({"scalableTopicEnabled": "false", "SCALABLE_TOPICS_ENABLED": "true"}, True),
    ],
)
def test_the_feature_has_a_switch_of_two_names(
    given: dict[str, str], enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load(monkeypatch, **given)["SCALABLE_TOPICS_ENABLED"] is enabled


def test_names_that_kubernetes_gives_for_a_service_are_no_slips(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [
        "PORT",
        "SERVICE_HOST",
        "SERVICE_PORT",
        "SERVICE_PORT_HTTP",
        "PORT_8080_TCP",
        "PORT_8080_TCP_ADDR",
    ]
    assert ignored(monkeypatch, **{f"SCALABLE_TOPICS_{end}": "10.0.0.1" for end in ends}) == []


def ignored(monkeypatch: pytest.MonkeyPatch, **environment: str) -> list[str]:
    """Give what is told of the names in this environment alone."""
    for name in [each for each in os.environ if each.lower().startswith("scalable")]:
        monkeypatch.delenv(name)
    told = load(monkeypatch, **environment)["SCALABLE_IGNORED_NAMES"]
    assert isinstance(told, list)
    return told


@pytest.mark.parametrize(("content", "said"), [("", "is no public key"), ("junk", "is no public key")])
def test_a_file_that_is_no_public_key_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str, said: str
) -> None:
    (file := tmp_path / "key.pem").write_text(content)
    with pytest.raises(ImproperlyConfigured, match=rf"^SCALABLE_TOKEN_PUBLIC_KEY_FILE={file} .*{said}"):
        load(monkeypatch, SCALABLE_TOKEN_PUBLIC_KEY_FILE=str(file))
