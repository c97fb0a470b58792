"""NWP 0.4: the site as nodes that agents query, invoke and subscribe to, over HTTP and natively over TCP.

`routes.py` mounts it. Over HTTP `http.py` reads a frame and `messages.py` answers it; over TCP `native.py`,
`handshake.py`, `sessions.py`, `frame_router.py` and `writer.py` do. Both hand frames to `service.py` (queries),
`actions.py` (calls) and `feeds.py` (subscriptions).
"""

import re
from typing import Final

import msgspec

from portico.config import Config
from portico.errors import ConfigError
from portico.protocols import Example, FooterLink, Port, Protocol
from portico.protocols.nwp.settings import NwpSettings
from portico.protocols.nwp.tls import load_tls

CAPABILITIES: Final = (
    *("nwp:query", "nwp:stream", "nwp:action", "nwp:invoke"),
    *("ncp:stream", "nop:delegate", "nop:orchestrate"),
)
_VERSION: Final = re.compile(r"(\d{1,6}\.\d{1,6})?", re.ASCII)


def _check_settings(config: Config, _: frozenset[str]) -> None:
    version = config.section(NwpSettings).min_version
    if not _VERSION.fullmatch(version):
        raise ConfigError(f"nwp.min_version: {version!r} is no version", hint="As in 0.3.")


def _with_port(config: Config, number: int) -> Config:
    return msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, nwp_port=number))


PROTOCOL: Final = Protocol(
    name="nwp",
    title="NWP",
    settings=NwpSettings,
    mount="portico.protocols.nwp.routes:mount",
    describe="portico.protocols.nwp.description:describe",
    paths=lambda _: ("/nwp", "/nwp/"),
    check=_check_settings,
    checks="portico.protocols.nwp.site_checks:check_site",
    exposed_headers=(
        *("x-nwp-schema", "x-nwp-tokens", "x-nwp-tokens-native", "x-nwp-tokenizer-used", "x-nwp-cached"),
        *("x-nwp-node-type", "x-nwp-request-id", "x-nwp-rate-limit", "x-nwp-rate-remaining", "x-nwp-rate-reset"),
    ),
    accepted_headers=(
        *("x-nwp-agent", "x-nwp-ident", "x-nwp-budget", "x-nwp-tokenizer", "x-nwp-depth", "x-nwp-encoding"),
        *("x-nwp-request-id", "x-nwp-version", "x-nwp-trace"),
    ),
    examples=lambda _: (Example("NWP", "/nwp/site", """curl {base}/nwp/site/query -d '{{"limit": 3}}'""", 4),),
    footer=(FooterLink("/nwp/site", "nwp", "NWP", 4),),
    capabilities=lambda config: (*CAPABILITIES, *config.section(NwpSettings).capabilities),
    check_node="portico.protocols.nwp.nodes:check_node",
    port=Port(
        "nwp",
        "--nwp-port",
        "NWP, natively",
        number=lambda config: config.server.nwp_port,
        with_number=_with_port,
        check=load_tls,
    ),
)
