"""Where nodes of `./run` listen and what others call them, and which settings of its caller hold."""

import ast
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from launch import commands
from launch.addresses import HERE, Addresses, addresses_of
from launch.instance import FILES, SECRETS, Instance
from launch.ports import free_port, is_free
from launch.process import LaunchError
from launch.services import reporter_spec
from launch.tls import Tls
from scalable import settings
from spark.withheld import WITHHELD
from tests.launch.test_instance import Launched
from tests.launch.test_tls import LOCAL, Authority
from tests.processes import Sandbox
from tests.tidy.test_settings import reads

PUBLIC = ("https://one.example.com", "https://two.example.com")
OF_THE_DIRECTORY = {"SCALABLE_DATA_DIR", "SCALABLE_NODE_URL"}  # by --data-dir and --url


@pytest.mark.parametrize(
    ("host", "near"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
        ("localhost", "http://localhost:80"),
    ],
)
def test_this_machine_reaches_what_listens_anywhere(host: str, near: str) -> None:
    assert Addresses(host).local_url(80) == near
    assert Addresses(host, PUBLIC).public_urls([near]) == PUBLIC
    assert Addresses(host).public_urls([near]) == (near,)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--host", "0.0.0.0"], "no address that others can reach"),
        (["--host", "203.0.113.7"], "cannot listen on 203.0.113.7"),
        (["--url", "topics.example.com"], "no address like"),
        (["--url", "https://topics.example.com/path"], "more than scheme, host and port"),
        (["--nodes", "2", "--url", PUBLIC[0]], "2 nodes want as many different addresses, not 1"),
        (["--nodes", "2", "--url", PUBLIC[0], "--url", PUBLIC[0]], "as many different addresses, not 1"),
        (["--url", PUBLIC[0], "--url", PUBLIC[1]], "1 nodes want as many different addresses, not 2"),
    ],
)
def test_addresses_that_cannot_be_are_told_before_anything_starts(
    options: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main(["up", "--data-dir", str(tmp_path / "data"), *options]) == 1
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_what_listens_beyond_this_machine_unencrypted_is_told(tmp_path: Path) -> None:
    assert Addresses("0.0.0.0", PUBLIC).are_open(None)
    assert not HERE.are_open(None)
    assert not Addresses("localhost").are_open(None)


def test_a_certificate_is_for_what_the_own_processes_call_the_node(tmp_path: Path) -> None:
    issued = Authority(tmp_path, "authority").issue("node", *LOCAL)
    tls = Tls(issued.cert, issued.key)
    assert Addresses("0.0.0.0").local_url(80, tls) == "https://127.0.0.1:80"
    assert Addresses("::1").local_url(80, tls) == "https://localhost:80"
    with pytest.raises(LaunchError, match="is not for 192"):
        tls.check("192.168.1.5")


def test_the_setting_names_a_node_unless_an_option_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert addresses_of("127.0.0.1", []).urls == ()
    monkeypatch.setenv("SCALABLE_NODE_URL", "https://set.example.com/")
    assert addresses_of("127.0.0.1", []).urls == ("https://set.example.com",)
    assert addresses_of("127.0.0.1", [PUBLIC[0]]).urls == (PUBLIC[0],)


def test_a_setting_that_the_caller_gives_holds_for_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that the launcher tells its children is another than what its environment has."""
    monkeypatch.chdir(tmp_path)
    given = {name: value for name, value in readable(tmp_path).items() if name not in OF_THE_DIRECTORY}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    instance = Instance(tmp_path / "data", port=None, report=print, addresses=Addresses(urls=PUBLIC[:1]))
    told = {**instance._settings, **instance._addresses({}), **instance._secrets(), **instance._proxied()}
    expected = {**given, **{name: str(tmp_path / given[name]) for name in FILES}}
    assert {name: value for name, value in told.items() if name not in OF_THE_DIRECTORY} == {
        name: expected[name] for name in told if name not in OF_THE_DIRECTORY
    }


def readable(folder: Path) -> dict[str, str]:
    """Give each setting a value that can be read; files lie in the folder, and are named by it."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "file").write_bytes(pem)
    (folder / "file").chmod(0o600)
    values = {
        "site": "https://set.example.com",
        "origins": "https://set.example.com",
        "secret": "given" * 12,
        "file": "file",
        "secret_file": "file",
        "public_key_file": "file",
        "public_key": pem.decode(),
    }
    servers = {"REDIS_URL": "redis://given"}
    return {
        name: values.get(reader)
        or (servers.get(name, "postgresql://given/name") if reader == "server" else str(default_of(name)))
        for name, (reader, _) in reads().items()
    }


def default_of(name: str) -> object:
    expression = reads()[name][1]
    assert expression is not None
    return eval(compile(ast.Expression(expression), name, "eval"), vars(settings))


@pytest.mark.parametrize("given", ["", *(f"{name}{end}" for name in SECRETS for end in ("", "_FILE"))])
def test_a_secret_is_made_only_where_none_is_given(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*SECRETS, *FILES):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "given"
    file.write_text("a secret")
    file.chmod(0o600)
    if given:
        monkeypatch.setenv(given, str(file))
    told = Instance(tmp_path / "data", port=None, report=print)._secrets()
    assert set(told) & set(SECRETS) == set(SECRETS) - {given.removesuffix("_FILE")}


def test_the_load_report_is_told_no_secret_and_nothing_of_its_masters_network() -> None:
    spec = reporter_spec(urls=PUBLIC, directory=Path("data"), java={"JAVA_HOME": "java"})
    assert set(spec.withheld) == set(WITHHELD)
    assert set(spec.environment) == {"PYTHONUNBUFFERED", "JAVA_HOME"}


@pytest.mark.parametrize(
    "name",
    ["SCALABLE_TOPICS_ENABLED", "SCALABLE_READ_ONLY", "SCALABLE_LOG_FORMAT", "scalableTopicMaxSegments"],
)
def test_a_setting_that_cannot_be_read_is_a_line_and_no_instance(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, "ture")
    assert commands.main(["up", "--data-dir", str(tmp_path / "data")]) == 1
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert name.removeprefix("scalableTopic").lower() in told.lower()
    assert not (tmp_path / "data").exists()


def two_free_ports() -> int:
    """Give the first of two free ports that are neighbours."""
    return next(port for port in iter(free_port, 0) if is_free(port + 1))


@pytest.mark.parametrize("taken", [0, 1])
def test_a_port_that_others_know_is_not_exchanged_for_another(
    sandbox: Sandbox, taken: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The servers that the environment names run."""
    port = two_free_ports()
    urls = ("--url", PUBLIC[0], "--url", PUBLIC[1])
    with socket.create_server(("127.0.0.1", port + taken)):
        options = ["up", "--data-dir", str(tmp_path / "data"), "--nodes", "2", "--port", str(port), *urls]
        assert commands.main(options) == 1
    assert f"port {port + taken} is taken" in capsys.readouterr().err


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Launched]:
    instance = Launched(tmp_path)
    yield instance
    instance.clean()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_behind_a_proxy_nodes_go_by_their_public_addresses_and_by_the_given_secrets(
    launched: Launched,
) -> None:
    keys = {name: secrets.token_urlsafe(48) for name in SECRETS}
    for name, key in keys.items():
        file = launched.folder / name.lower()
        file.write_text(key)
        file.chmod(0o600)
        launched.environment[f"{name}_FILE"] = file.name  # in the folder where it is called
    port = two_free_ports()
    launched.start("--nodes", "2", "--port", str(port), "--url", PUBLIC[0], "--url", PUBLIC[1])
    assert [url.rpartition(":")[2] for url in launched.urls] == [str(port), str(port + 1)]
    assert all(f"{url}/" in launched.output.read_text() for url in PUBLIC)
    signed = jwt.encode({"sub": "admin"}, keys["SCALABLE_TOKEN_SECRET"], algorithm="HS256")
    bearer = {"Authorization": f"Bearer {signed}"}
    with httpx.Client(base_url=launched.url, trust_env=False) as client:
        assert client.get("/admin/v2/tenants", headers=bearer).status_code == 200  # its own processes
        proxied = {"Host": "one.example.com", "X-Forwarded-Proto": "https", "X-Forwarded-For": "10.0.0.1"}
        login = client.get("/login", headers=proxied)
        assert (login.status_code, "Secure" in login.headers["Set-Cookie"]) == (200, True)
        assert "Strict-Transport-Security" in login.headers
        assert client.get("/login", headers={**proxied, "Host": "evil.example.com"}).status_code == 400
        nodes = client.get("/admin/v2/nodes", headers=bearer).json()["nodes"]
    assert {node["url"] for node in nodes} == set(PUBLIC)
    assert not (launched.data / "token-secret").exists()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_where_topics_are_switched_off_nothing_measures_their_load(launched: Launched) -> None:
    launched.environment["SCALABLE_TOPICS_ENABLED"] = "false"
    launched.start(without="--workers=1")  # with the demo and Spark, if it could
    assert launched.children("spark.load_report") == []
    assert "error" not in launched.output.read_text().lower()
