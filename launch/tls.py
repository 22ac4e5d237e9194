"""Encryption of an instance's nodes: what `./run up` was given, checked before anything starts."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from cryptography import x509

from launch.ports import HOST
from launch.process import LaunchError
from scalable.wire.tls import client_context

LOCAL_NAME = "localhost"
LOOPBACK = {HOST, "::1"}


@dataclass(frozen=True)
class Tls:
    """A certificate with its key; with `client_ca` nobody gets in without a certificate that it signed.

    The instance's own processes reach the nodes with the same certificate.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None

    def name_for(self, host: str) -> str:
        """The name of `host` that the certificate holds for; raises LaunchError when it has none."""
        names = _names_of(self.cert)
        local = host in LOOPBACK
        if host in _all(names) or (local and LOCAL_NAME in _all(names)):
            return host if host in _all(names) else LOCAL_NAME
        raise LaunchError(
            f"the certificate {self.cert} is for neither {host} nor {LOCAL_NAME}"
            if local
            else f"the certificate {self.cert} is not for {host}",
            "the instance's own processes reach the nodes there; add it as an alternative name",
        )

    def check(self, host: str = HOST) -> None:
        """Raise LaunchError when a file is missing, unreadable, or does not belong to the others."""
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.cert, self.key)
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise LaunchError(
                f"the certificate cannot be used: {error}", "give PEM files; the key has no password"
            ) from error
        if self.key.stat().st_mode & 0o077:
            raise LaunchError(f"the key {self.key} can be read by others", f"chmod 600 {self.key}")
        self.name_for(host)
        _check_time(self.cert, datetime.now(UTC))

    @property
    def server_options(self) -> tuple[str, ...]:
        """What the ASGI server is told."""
        options = ("--ssl-certfile", str(self.cert), "--ssl-keyfile", str(self.key))
        if self.client_ca is None:
            return options
        return (
            *options,
            "--ssl-ca-certs",
            str(self.client_ca),
            "--ssl-cert-reqs",
            str(int(ssl.CERT_REQUIRED)),
        )

    @cached_property
    def context(self) -> ssl.SSLContext:
        """How this process meets the nodes."""
        return client_context(ca_file=str(self.cert), cert_file=str(self.cert), key_file=str(self.key))

    def environment(self) -> dict[str, str]:
        """What processes need that call the nodes."""
        return {
            "SCALABLE_TLS_CA": str(self.cert),
            "SCALABLE_TLS_CERT": str(self.cert),
            "SCALABLE_TLS_KEY": str(self.key),
        }


def _check_time(cert: Path, now: datetime) -> None:
    certificate = _read(cert)
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not first <= now <= last:
        raise LaunchError(f"the certificate {cert} is valid from {first} to {last} alone", "renew it")


def _read(cert: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificates(cert.read_bytes())[0]


def _names_of(cert: Path) -> x509.SubjectAlternativeName:
    try:
        return _read(cert).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return x509.SubjectAlternativeName([])


def _all(names: x509.SubjectAlternativeName) -> set[str]:
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    return addresses | set(names.get_values_for_type(x509.DNSName))
