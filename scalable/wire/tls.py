"""How clients of a node, and nodes among themselves, check who answers and show who they are."""

import ssl


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
