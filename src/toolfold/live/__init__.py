"""Live: a Python session in a process of its own, and three tools that look into it.

`worker/` runs in the child and knows the standard library only. Everything else stands in the host. Above: the gateway.
Below: the sandbox.
"""
