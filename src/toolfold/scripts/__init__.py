"""Scripts: one Python text that says in plain words which tools it needs, and gets typed functions for just those.

`declare` finds the needs before anything runs, `modelling` turns schemas into models, `harness` runs the script in a
confined child and answers its calls, `runtime` is what the child itself holds. Above: the gateway, which resolves the
needs and makes the calls. Below: the sandbox.
"""
