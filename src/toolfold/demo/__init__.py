"""The demo: three small real MCP servers (git, files, sqlite) and the data that they serve.

They start fast, need nothing installed, and are good examples of servers: typed results, true annotations, bounds.
"""
