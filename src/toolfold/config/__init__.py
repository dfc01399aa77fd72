"""The configuration: settings as values, secrets, and taking servers over from MCP clients.

`Settings.load()` reads `toolfold.toml` or an `mcp.json`. `resolve(spec)` fills a server's secrets in. The import lives
in `toolfold.config.clients` and is loaded only by those who use it.
"""

from toolfold.config.secrets import fill, mask, missing, resolve
from toolfold.config.settings import Settings
from toolfold.config.values import Audit, CallerKey, Limits, MetadataRule, Model, Outputs, Policy, Telemetry, Trust

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
    "mask",
    "missing",
    "resolve",
]
