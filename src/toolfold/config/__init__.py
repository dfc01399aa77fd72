"""The configuration: settings as values, secrets, and taking servers over from MCP clients.

`Settings.load()` reads `toolfold.toml` or an `mcp.json`. `resolve(spec)` fills a server's secrets in. The import lives
in `toolfold.config.clients` and is loaded only by those who use it.
"""

from toolfold.config.secrets import fill, missing, redact, resolve
from toolfold.config.sections import Audit, CallerKey, Limits, MetadataRule, Model, Outputs, Policy, Telemetry, Trust
from toolfold.config.settings import Settings

__all__ = [
    "Audit",
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
    "missing",
    "redact",
    "resolve",
]
