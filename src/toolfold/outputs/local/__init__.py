"""Extraction without a language model: the document is searched, and what was found is quoted with its place.

In the order of the flow: `request` (what is asked), `source` (the bytes), `formats` (what kind of text), `units` and
`tape` (how it is divided), `scan` (where the words stand), `ranking`, `rendering`, and `answer` that joins them.
`exact`, `fields`, `aggregates` and `times` answer what can be answered exactly.
"""
