"""Policy: which tools a caller may see and call, which calls a person must confirm, and which tools are trusted.

Patterns of the configuration are compiled once (`patterns`, `rules`). `scanning` looks for what a description hides or
tells a model to do, `trusting` remembers what was accepted. Nothing here knows a wire or a call: the gateway asks.
Below lies the catalogue; search and disclosure are not known here.
"""
