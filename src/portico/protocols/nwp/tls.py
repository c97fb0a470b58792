"""TLS of the native port, as the settings say."""

import ssl
from pathlib import Path

from portico.config import Config
from portico.errors import ConfigError
from portico.protocols.nwp.settings import NwpSettings


def load_tls(config: Config) -> ssl.SSLContext | None:
    """Return the TLS of the native port; None if the site has no certificate for it."""
    nwp = config.section(NwpSettings)
    if not nwp.tls_certificate and not nwp.tls_key:
        return None
    files = [Path(config.folder, name) for name in (nwp.tls_certificate, nwp.tls_key) if name]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        if missing := _find_missing(nwp, files):
            raise ConfigError(missing, hint="Both are files in PEM, or one that holds the key beside the certificate.")
        context.load_cert_chain(*files, password="")  # nobody is there to be asked for one
    except OSError as error:
        is_foreign = getattr(error, "reason", "") == "KEY_VALUES_MISMATCH"
        problem = "the key is that of another certificate" if is_foreign else str(error)
        raise ConfigError(
            f"nwp.tls_certificate and nwp.tls_key cannot be used: {problem}",
            hint="Both are files in PEM; the key belongs to the certificate and has no password.",
        ) from error
    return context


def _find_missing(nwp: NwpSettings, files: list[Path]) -> str:
    if not nwp.tls_certificate:
        return "nwp.tls_certificate is missing; nwp.tls_key alone is of no use"
    has_key = any(b"PRIVATE KEY-----" in file.read_bytes() for file in files)
    return "" if nwp.tls_key or has_key else f"nwp.tls_key is missing; {nwp.tls_certificate} holds no key"
