"""Calls: one shape, `ToolCall` with its `CallContext`, through the parts of a pipeline to the server that answers.

`pipeline` runs the parts; each other module is one of them: `authorize`, `validate`, `confirm`, `toolbox` check a call,
`dispatch` sends it, `timeout` bounds it. The gateway lists them; what records calls or stores results stands in
`audit` and `outputs`. Below are the upstreams, of which only the dispatch knows.
"""

from toolfold.calls.pipeline import CallEnd, CallObserver, CallPipeline, Check, Handler, ResultHook

__all__ = ["CallEnd", "CallObserver", "CallPipeline", "Check", "Handler", "ResultHook"]
