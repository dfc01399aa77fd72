"""Taking servers over from MCP clients: find them, plan, show the plan, apply it; on request point the client here.

Only `apply`, `replace_servers` and `restore` write, and each backs up what it changes.
"""

from toolfold.config.clients.discovery import (
    CLIENTS,
    ClientConfig,
    ClientServer,
    discover,
    read_client_file,
)
from toolfold.config.clients.import_plan import Applied, ImportPlan, apply, plan_import
from toolfold.config.clients.replacement import Replacement, replace_servers, toolfold_entry
from toolfold.config.files import backups, restore

__all__ = [
    "CLIENTS",
    "Applied",
    "ClientConfig",
    "ClientServer",
    "ImportPlan",
    "Replacement",
    "apply",
    "backups",
    "discover",
    "plan_import",
    "read_client_file",
    "replace_servers",
    "restore",
    "toolfold_entry",
]
