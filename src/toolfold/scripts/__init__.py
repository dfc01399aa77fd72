"""Scripts: Python source that says in plain words which tools it needs, and gets typed functions for just those.

`declarations` lists the needs before anything runs, `tool_specs` describes the tools as functions and models, `runner`
resolves the needs and starts the script, `execution` runs it in a confined child and answers its calls. `runtime` is
what runs in the child itself. Above: the gateway. Below: the sandbox.
"""
