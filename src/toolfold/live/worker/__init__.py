"""The child's side of a live session: standard library only, small modules, no import of the host's side.

A supervisor process owns the channel to the host and keeps the deadlines. It never runs a person's code. The session
process below it does, and forks for whatever might hang, crash or change something while it is looked at.
"""
