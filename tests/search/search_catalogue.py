"""A small catalogue of our own making, for the tests of search: six servers, two dozen tools, and an encoder."""

from functools import cache

from toolfold.search.document import Document
from toolfold.search.encoder import Encoder
from toolfold.search.index import SearchIndex

_TOOLS = (
    ("weather", "get_forecast", "Weather forecast for a place for the coming days.", "place days", ("Weather",)),
    ("weather", "get_air_quality", "Current air quality and pollen count for a city.", "city", ("Weather",)),
    ("weather", "list_storm_warnings", "Official storm and flood warnings for a region.", "region", ("Weather",)),
    ("git", "git_commit", "Record staged changes in the repository with a message.", "message", ("Code", "Git")),
    ("git", "git_diff", "Show what differs between two revisions of the repository.", "base head", ("Code", "Git")),
    ("git", "git_create_branch", "Create a new branch in the repository.", "branch_name start", ("Code", "Git")),
    ("git", "git_log", "List past commits of the repository, newest first.", "max_count", ("Code", "Git")),
    ("tracker", "create_issue", "Open a new issue in a project of the tracker.", "title body", ("Code", "Issues")),
    ("tracker", "close_issue", "Close an issue, with an optional comment.", "issue_id comment", ("Code", "Issues")),
    ("tracker", "assign_issue", "Assign an issue to a member of the team.", "issue_id member", ("Code", "Issues")),
    ("mail", "send_email", "Send an email to one or more recipients.", "to subject body", ("Office", "Mail")),
    ("mail", "search_inbox", "Find messages in the inbox by sender, subject or date.", "query", ("Office", "Mail")),
    ("mail", "schedule_meeting", "Book a slot in the calendar.", "attendees start end", ("Office", "Calendar")),
    ("mail", "list_events", "Events of a calendar between two dates.", "start end", ("Office", "Calendar")),
    ("db", "run_query", "Run a read-only SQL query and return its rows.", "sql", ("Data",)),
    ("db", "describe_table", "Columns, types and keys of a database table.", "table", ("Data",)),
    ("db", "delete_rows", "Delete rows that match a condition from a table.", "table condition", ("Data",)),
    ("db", "export_csv", "Write the rows of a table to a CSV file.", "table file_path", ("Data",)),
    ("shop", "refund_payment", "Give a customer the money for an order back.", "order_id amount", ("Shop",)),
    ("shop", "track_parcel", "Where a parcel is and when it will be delivered.", "tracking_number", ("Shop",)),
    ("shop", "update_stock", "Set how many pieces of a product are in stock.", "product_id pieces", ("Shop",)),
    ("shop", "translate_text", "Translate text from one language into another.", "text target", ("Shop", "Text")),
)


def tools() -> list[Document]:
    return [
        Document(
            tool_id=f"{server}.{name}",
            name=name,
            description=description,
            parameters=tuple((parameter, "") for parameter in parameters.split()),
            server=server,
            category=path,
            paths=(path,),
            tags=("risk:destructive",) if name.startswith("delete") else (),
        )
        for server, name, description, parameters, path in _TOOLS
    ]


@cache
def encoder() -> Encoder:
    """Loading takes a tenth of a second: once is enough."""
    return Encoder()


@cache
def index() -> SearchIndex:
    """The small catalogue in memory. Nobody changes it."""
    made = SearchIndex.open(None, encoder=encoder())
    made.sync(tools())
    return made
