"""How clients of a node, and nodes among themselves, check who answers and show who they are."""

import ssl
from collections.abc import Mapping
from pathlib import Path

SETTINGS = {"ca_file": "SCALABLE_TLS_CA", "cert_file": "SCALABLE_TLS_CERT", "key_file": "SCALABLE_TLS_KEY"}


def client_context(*, ca_file: str = "", cert_file: str = "", key_file: str = "") -> ssl.SSLContext:
    """Trust what is in `ca_file`, else what the system trusts; show a certificate where one is given.

    A certificate in `ca_file` is trusted whether it is an authority's or the node's own. Raises OSError when
    a file cannot be read.
    """
    context = ssl.create_default_context(cafile=ca_file or None)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if cert_file:
        context.load_cert_chain(cert_file, key_file or None)
    return context


def environment_context(environment: Mapping[str, str]) -> ssl.SSLContext:
    """Meet nodes as the environment says it.

    Raises OSError, which names the setting whose file is of no use.
    """
    files = {part: environment.get(name, "") for part, name in SETTINGS.items()}
    for part, path in files.items():
        if path:
            _check_readable(SETTINGS[part], path)
    try:
        return client_context(**files)
    except ssl.SSLError as error:
        given = ", ".join(f"{SETTINGS[part]}={path}" for part, path in files.items() if path)
        raise OSError(f"{given} cannot be used: {error}") from error


def _check_readable(name: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise type(error)(error.errno, f"{name}: {error.strerror}", path) from error
