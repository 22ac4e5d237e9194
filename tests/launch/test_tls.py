"""Encrypted nodes: who is trusted, who gets in, and what `./run up` refuses before anything starts."""

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from launch import commands
from launch.addresses import HERE
from launch.ports import free_port
from launch.process import LaunchError
from launch.sandbox import ProcessFactory, token
from launch.services import web_spec
from launch.tls import Tls
from scalable.client import Admin, Producer
from scalable.client.connection import ConnectionLost
from scalable.domain.names import TopicName
from scalable.wire.tls import client_context
from spark import rest as spark_rest

ORDERS = "topic://public/default/orders"
LOCAL = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
LIFE = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Issued:
    """A certificate with its key, as files."""

    cert: Path
    key: Path


class Authority:
    """An authority for a test, with what it signs."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._name = directory, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._sign(name, self._key, ())
        self.file = self._write(f"{name}.pem", self._certificate.public_bytes(Encoding.PEM))

    def issue(
        self, name: str, *names: x509.GeneralName, later: datetime.timedelta = datetime.timedelta()
    ) -> Issued:
        """A certificate for these names, for a day before and after what is so much later than now."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(name, key, names, later=later)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return Issued(
            self._write(f"{self._name}-{name}.pem", certificate.public_bytes(Encoding.PEM)),
            self._write(f"{self._name}-{name}.key", private),
        )

    def _sign(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        names: tuple[x509.GeneralName, ...],
        *,
        later: datetime.timedelta = datetime.timedelta(),
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC) + later
        subject, issuer = (
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, self._name)
        )
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - LIFE)
            .not_valid_after(now + LIFE)
            .add_extension(x509.BasicConstraints(ca=name == self._name, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name: str, content: bytes) -> Path:
        file = self._directory / name
        file.write_bytes(content)
        file.chmod(0o600)
        return file


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """The authority that the nodes' certificate comes from."""
    return Authority(tmp_path, "authority")


def start(processes: ProcessFactory, environment: dict[str, str], tls: Tls) -> str:
    """Start an encrypted node and give its address."""
    tls.check()
    port = free_port()
    processes.run(web_spec(port=port, environment=environment, tls=tls))
    return HERE.local_url(port, tls)


async def test_an_encrypted_node_serves_whoever_trusts_it(
    processes: ProcessFactory,
    service_environment: dict[str, str],
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = authority.issue("node", *LOCAL)
    url = start(processes, service_environment, Tls(node.cert, node.key))
    assert url.startswith("https://127.0.0.1:")
    with Admin(url, token("admin")) as stranger, pytest.raises(ConnectionLost, match="CERTIFICATE_VERIFY"):
        stranger.create_topic(ORDERS)
    monkeypatch.setenv("SCALABLE_TLS_CA", str(authority.file))
    with Admin(url, token("admin")) as admin:
        admin.create_topic(ORDERS)
        async with Producer(url, ORDERS, token=token("admin")) as producer:
            await producer.send("key", b"value")
        assert admin.get_topic(ORDERS)["epoch"] == 0
    spark_rest._tls.cache_clear()
    assert spark_rest.NodeClient(url, token("admin")).extents(TopicName.parse(ORDERS)).segments
    context = client_context(ca_file=str(authority.file))
    async with httpx.AsyncClient(verify=context, trust_env=False) as client:
        login = await client.get(f"{url}/login")
    assert login.headers["Strict-Transport-Security"] == "max-age=31536000"
    assert "Secure" in login.headers["Set-Cookie"]
    spark_rest._tls.cache_clear()


async def test_with_mutual_tls_nobody_gets_in_without_a_certificate(
    processes: ProcessFactory, service_environment: dict[str, str], authority: Authority, tmp_path: Path
) -> None:
    node, client = authority.issue("node", *LOCAL), authority.issue("client")
    foreign = Authority(tmp_path, "stranger").issue("client")
    url = start(processes, service_environment, Tls(node.cert, node.key, authority.file))

    async def knock(shown: Issued | None) -> int:
        files = {"cert_file": str(shown.cert), "key_file": str(shown.key)} if shown else {}
        context = client_context(ca_file=str(authority.file), **files)
        async with httpx.AsyncClient(verify=context, trust_env=False) as session:
            return (await session.get(f"{url}/livez")).status_code

    assert await knock(client) == 200
    for shown in (None, foreign):
        with pytest.raises((httpx.TransportError, ssl.SSLError)):
            await knock(shown)


@pytest.mark.parametrize("encrypted", [True, False])
async def test_a_socket_that_is_refused_leaves_no_error_behind(
    processes: ProcessFactory, service_environment: dict[str, str], authority: Authority, encrypted: bool
) -> None:
    node = authority.issue("node", *LOCAL)
    tls = Tls(node.cert, node.key) if encrypted else None
    port = free_port()
    process = processes.run(web_spec(port=port, environment=service_environment, tls=tls))
    url = f"{HERE.local_url(port, tls)}/ws/v2/scalable/lookup/public/default/orders".replace("http", "ws", 1)
    context = client_context(ca_file=str(authority.file)) if encrypted else None
    for _ in range(5):
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, ssl=context, proxy=None)
        assert refused.value.response.status_code == 401
    process.stop()
    told = process.log.path.read_text()
    assert "Application startup complete" in told
    assert "ERROR" not in told


def test_what_cannot_be_used_is_said_before_anything_starts(
    authority: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node, other = authority.issue("node", *LOCAL), authority.issue("elsewhere", x509.DNSName("example.com"))
    with pytest.raises(LaunchError, match="nor localhost"):
        Tls(other.cert, other.key).check()
    with pytest.raises(LaunchError, match="cannot be used"):
        Tls(node.cert, other.key).check()
    with pytest.raises(LaunchError, match="cannot be used"):
        Tls(node.cert, node.key, tmp_path / "missing.pem").check()
    assert commands.main(["up", "--data-dir", str(tmp_path / "data"), "--tls-cert", str(node.cert)]) == 1
    assert "both --tls-cert and --tls-key" in capsys.readouterr().err
    node.key.chmod(0o644)
    arguments = ["up", "--data-dir", str(tmp_path / "data"), "--tls-cert", str(node.cert)]
    assert commands.main([*arguments, "--tls-key", str(node.key)]) == 1
    assert "can be read by others" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("days", [-2, 2])
def test_a_certificate_out_of_its_time_is_told_before_anything_starts(
    authority: Authority, days: int
) -> None:
    node = authority.issue("node", *LOCAL, later=datetime.timedelta(days=days))
    with pytest.raises(LaunchError, match=r"is valid from .* to .* alone"):
        Tls(node.cert, node.key).check()
