"""The configuration: settings as values, secrets, and taking servers over from MCP clients.

`Settings.load()` reads `toolfold.toml` or an `mcp.json`. `resolve(spec)` fills a server's secrets in. The import lives
in `toolfold.config.clients` and is loaded only by those who use it.
"""

from toolfold.config.secrets import fill, find_plain_secrets, missing, resolve
from toolfold.config.sections import (
    LOCAL_NAME,
    MIN_KEY_LENGTH,
    Audit,
    Auth,
    CallerKey,
    Limits,
    MetadataRule,
    Model,
    Outputs,
    Policy,
    Telemetry,
    Trust,
)
from toolfold.config.settings import Settings
from toolfold.redaction import redact

__all__ = [
    "LOCAL_NAME",
    "MIN_KEY_LENGTH",
    "Audit",
    "Auth",
    "CallerKey",
    "Limits",
    "MetadataRule",
    "Model",
    "Outputs",
    "Policy",
    "Settings",
    "Telemetry",
    "Trust",
    "fill",
    "find_plain_secrets",
    "missing",
    "redact",
    "resolve",
]
