"""The web console: what agents see, do and save, as pages for people.

    app.py       addresses, the one path that every request takes, errors as pages
    entry.py     how whoever runs `toolfold console` comes in
    browser.py   who looks: the session of a browser, sealed in its cookie, and the tokens of its forms
    html.py      templates and how figures are written; html/ has the templates, static/ styles and scripts
    changes.py   what a person changes from here, written to the files that the command line writes
    pages/       one module a page: what it shows, as values

Server-rendered, and usable without a script of its own where that is possible. It asks the gateway, as every face does,
and shows what the caller's policy lets through. Above: `toolfold serve --http` and `toolfold console`.
"""

from toolfold.faces.console.app import _console_routes
from toolfold.faces.console.entry import _OwnerEntry

__all__ = ["_OwnerEntry", "_console_routes"]
