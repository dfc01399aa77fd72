"""Calls: a call on its way to its server, through handlers that each wrap the next.

One shape from end to end: a `Handler` takes a `Request` and gives an `Outcome`. `stack` builds the whole from the
outside in. The gateway stands above; below are the upstreams, of which only the innermost handler knows.
"""

from toolfold.calls.pipeline import CallRequest, Check, Handler, Middleware, compose, run_checks

__all__ = ["CallRequest", "Check", "Handler", "Middleware", "compose", "run_checks"]
