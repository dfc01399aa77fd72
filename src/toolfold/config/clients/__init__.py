"""Taking servers over from MCP clients: find them, plan, show the plan, apply it; on request point the client here.

Only `apply`, `Journal` and `restore` write. `apply` backs up what it changes, the journal takes the last of it back.
"""

from toolfold.config.clients.discovery import (
    CLIENTS,
    ClientConfig,
    ClientServer,
    discover,
    read_client_file,
)
from toolfold.config.clients.import_plan import Applied, ImportPlan, Rewrite, apply, check_import, plan_import
from toolfold.config.clients.replacement import put_back, toolfold_entry
from toolfold.config.files import backups, restore
from toolfold.config.transaction import Journal

__all__ = [
    "CLIENTS",
    "Applied",
    "ClientConfig",
    "ClientServer",
    "ImportPlan",
    "Journal",
    "Rewrite",
    "apply",
    "backups",
    "check_import",
    "discover",
    "plan_import",
    "put_back",
    "read_client_file",
    "restore",
    "toolfold_entry",
]
