"""Taking servers over from MCP clients: find them, plan, show the plan, apply it; on request point the client here.

Nothing is written but by `apply`, `replace_servers` and `restore`, and each keeps a backup of what it changes.
"""

from toolfold.config.clients.apply import Applied, apply
from toolfold.config.clients.discover import ClientConfig, ClientServer, discover, read_client_file
from toolfold.config.clients.import_plan import ImportPlan, PlanItem, PlannedSecret, plan_import
from toolfold.config.clients.locations import CLIENTS, Location, locations
from toolfold.config.clients.replacement import Replacement, replace_servers, toolfold_entry
from toolfold.config.files import backups, restore

__all__ = [
    "CLIENTS",
    "Applied",
    "ClientConfig",
    "ClientServer",
    "ImportPlan",
    "Location",
    "PlanItem",
    "PlannedSecret",
    "Replacement",
    "apply",
    "backups",
    "discover",
    "locations",
    "plan_import",
    "read_client_file",
    "replace_servers",
    "restore",
    "toolfold_entry",
]
