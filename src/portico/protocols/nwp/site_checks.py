"""What `portico check` checks of NWP's settings. Contacts nobody."""

from collections.abc import Iterator
from typing import Any

from portico.access.nip.verifier import CertificateVerifier
from portico.config import Config, ca_file_of, secret
from portico.protocols import Finding, attempt
from portico.protocols.nwp.graph import is_allowed
from portico.protocols.nwp.settings import NodeReference, NwpSettings
from portico.protocols.nwp.tls import load_tls
from portico.redaction import redact_url


def check_site(config: Config, store: Any) -> Iterator[Finding]:
    nwp = config.section(NwpSettings)
    if config.ca_file:
        yield attempt("ca_file", "contains certificates of authorities", lambda: ca_file_of(config))
    if nwp.tls_certificate or nwp.tls_key:
        yield attempt("nwp.tls_certificate", "can be used with its key", lambda: load_tls(config))
    if nwp.callback_secret:
        yield attempt("nwp.callback_secret", "is set in the environment", lambda: secret(nwp.callback_secret))
    for node in nwp.node:
        yield _check_node(node, nwp.allow_nodes)
    if nwp.issuers:
        yield attempt(
            "nwp.issuers", "are addresses; not contacted by this check", lambda: CertificateVerifier(config, store)
        )


def _check_node(node: NodeReference, allowed_urls: tuple[str, ...]) -> Finding:
    is_ok = is_allowed(node.url, allowed_urls)
    message = "may be asked" if is_ok else "is never asked: no entry of nwp.allow_nodes matches it"
    return Finding(f"nwp.node {redact_url(node.url)}", is_ok, message)
