"""What each page shows, as values: one module a page. `GETS` and `POSTS` say which addresses are its."""

from toolfold.faces.console.pages import access, home, outputs, runs, schemas, search, traces, tree
from toolfold.faces.console.visit import Work

_PAGES = (home, traces, search, tree, schemas, outputs, runs, access)
GETS: dict[str, Work] = {address: work for page in _PAGES for address, work in page.GETS.items()}
POSTS: dict[str, Work] = {address: work for page in _PAGES for address, work in page.POSTS.items()}
MENU = (
    ("/", "Home"),
    ("/traces", "Traces"),
    ("/search", "Search"),
    ("/tree", "Tree"),
    ("/schemas", "Schemas"),
    ("/outputs", "Outputs"),
    ("/runs", "Runs"),
    ("/access", "Access"),
)
