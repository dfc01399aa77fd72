"""The child's side of a live session: standard library only, no import of the host's side.

The supervisor process owns the channel to the host and keeps the deadlines; it never runs user code. The session
process below it does, and forks for whatever might hang, crash or change something while it is inspected.
"""
