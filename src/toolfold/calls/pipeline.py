"""One call on its way: checks before it, the dispatch to its server, hooks on its result, observers at its end.

The gateway lists the parts; this module runs them. They are flat lists and no nested handlers: few of them have to wait
for anything, and every level of nesting would cost each call another coroutine. A part is a function of the `ToolCall`
and its `CallContext`; which parts exist is not known here. Below: the upstreams, of which only the dispatch knows.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from toolfold.errors import INTERNAL_ERROR, RemoteError, ServerTimeout, SignInRequired, ToolfoldError
from toolfold.types import CallContext, Outcome, ToolCall
from toolfold.wire.deadlines import Deadlines

Handler = Callable[[ToolCall, CallContext], Awaitable[Outcome]]

# Completes the context of a call, once: the policy of its caller, its time limit.
Prepare = Callable[[ToolCall, CallContext], CallContext]

# Looks at a call before it is dispatched. It raises to refuse it, or returns an awaitable of the call that goes on in
# its place, or of the outcome that answers it here. `None`: the call goes on as it is, and nothing was awaited.
Check = Callable[[ToolCall, CallContext], Awaitable[ToolCall | Outcome] | None]

# Looks at a result. `None`: it stays; else an awaitable of the outcome in its place.
ResultHook = Callable[[ToolCall, CallContext, Outcome], Awaitable[Outcome] | None]

# Asks for the sign-in that a call failed for want of, and returns once there is one. Raises where nobody can be asked.
RequestSignIn = Callable[[ToolCall, CallContext, SignInRequired], Awaitable[None]]

# Names the setting that says how long the calls of a server may take.
LimitedBy = Callable[[str], str]

# Looks at a call that its server refused. `None`: that stands; else an error that says more takes its place.
Explain = Callable[[ToolCall, CallContext, Outcome | RemoteError], Awaitable[ToolfoldError | None]]


class CallEnd(Struct, frozen=True):
    """A call that is over: with an outcome, or with the code and text of what went wrong."""

    call: ToolCall
    context: CallContext
    at: float
    seconds: float
    outcome: Outcome | None = None
    code: str = ""
    message: str = ""


class CallObserver:
    """Hears of every call, however it ends. This one ignores all of it."""

    def started(self, call: ToolCall) -> None:
        """The call passed through the gateway's door; nothing is checked yet."""

    def ended(self, end: CallEnd) -> None:
        """The call is over, and whoever waits for its outcome is about to get it."""


class CallPipeline:
    """The way that every call of one gateway takes. Use it as a `Handler`."""

    def __init__(
        self,
        dispatch: Handler,
        *,
        prepare: Prepare,
        checks: Sequence[Check] = (),
        result_hooks: Sequence[ResultHook] = (),
        explain: Explain | None = None,
        sign_in: RequestSignIn | None = None,
        limited_by: LimitedBy = "call_timeout_s of {}".format,
        observer: CallObserver | None = None,
    ) -> None:
        self._dispatch = dispatch
        self._explain = explain
        self._sign_in = sign_in
        self._limited_by = limited_by
        self._prepare = prepare
        self._checks = checks
        self._result_hooks = result_hooks
        self._observer = observer if observer is not None else CallObserver()
        self._deadlines = Deadlines()

    async def __call__(self, call: ToolCall, context: CallContext, *, again: bool = False) -> Outcome:
        signing_in: Awaitable[None]  # where there is no outcome
        given, context = context, self._prepare(call, context)
        self._observer.started(call)
        started = time.perf_counter()
        outcome: Outcome | None = None
        code, message = INTERNAL_ERROR, "something went wrong that has no name"
        asked = call
        try:
            answer: Outcome | None = None
            for check in self._checks:
                waiting = check(call, context)
                if waiting is not None:
                    checked = await waiting
                    if isinstance(checked, Outcome):
                        answer = checked
                        break
                    call = checked
            if answer is None:
                answer = await self._dispatch_in_time(call, context, given.timeout_s)
            outcome = await self._finish(asked, context, answer)
            code = message = ""
        except ToolfoldError as error:
            code, message = error.code, error.message
            signing_in = await self._look_into(call, context, error, again)
        except asyncio.CancelledError:
            code, message = "CANCELLED", ""
            raise
        finally:
            seconds = time.perf_counter() - started
            self._observer.ended(CallEnd(asked, context, time.time() - seconds, seconds, outcome, code, message))
        if outcome is not None:
            return outcome
        await signing_in
        return await self(asked, given, again=True)  # its server refused it before it did anything

    async def _finish(self, asked: ToolCall, context: CallContext, outcome: Outcome) -> Outcome:
        """What the hooks make of the result of a call as it was asked for: its arguments may have been large values
        behind short references."""
        try:
            for hook in self._result_hooks:
                changed = hook(asked, context, outcome)
                if changed is not None:
                    outcome = await changed
        except ToolfoldError as error:
            raise error.after_work() from error.__cause__
        return outcome

    async def _look_into(
        self, call: ToolCall, context: CallContext, error: ToolfoldError, again: bool
    ) -> Awaitable[None]:
        """What to wait for before the call is made again. Raises the error where it is not, or what explains it."""
        if isinstance(error, RemoteError):
            await self._check_refusal(call, context, error)
        if again or self._sign_in is None or not isinstance(error, SignInRequired):
            raise error
        return self._sign_in(call, context, error)

    async def _check_refusal(self, call: ToolCall, context: CallContext, failure: Outcome | RemoteError) -> None:
        """Raises what explains a failure."""
        problem = None if self._explain is None else await self._explain(call, context, failure)
        if problem is not None:
            raise problem

    async def _dispatch_in_time(self, call: ToolCall, context: CallContext, requested: float | None) -> Outcome:
        """Only the server's part is timed, whatever progress it reports: a person who is asked to confirm may take
        longer. What `asyncio.timeout` does, at a tenth of its cost: all calls share one timer."""
        limit, task = context.timeout_s, asyncio.current_task()
        if limit is None or task is None:
            return await self._dispatch(call, context)
        expired, within = False, limit

        def expire() -> None:
            nonlocal expired, within
            if context.task is not None and context.task.follows and context.task.limit_s > within:
                # Its server made a task of it, which may take longer than an answer.
                more, within = context.task.limit_s - within, context.task.limit_s
                deadlines.append(self._deadlines.start(more, expire))
                return
            expired = True
            task.cancel()

        deadlines = [self._deadlines.start(limit, expire)]
        try:
            outcome = await self._dispatch(call, context)
        except asyncio.CancelledError:
            # Somebody else may have cancelled the task as well: then that cancellation goes on.
            if not expired or task.uncancel() > 0:
                raise
            limited_by = self._limited_by(call.tool.server) if within == limit else ""
            raise _timeout_error(call, within, requested, limited_by) from None
        finally:
            deadlines[-1].stop()
        if outcome.is_error:
            await self._check_refusal(call, context, outcome)
        return outcome


def _timeout_error(call: ToolCall, limit: float, requested: float | None, limited_by: str) -> ServerTimeout:
    """Whose limit it was decides what would help."""
    if not limited_by:
        whose, more = "the limit of a task", "see whether it had its effect before you call it again"
    elif requested is not None and requested <= limit:
        whose, more = "the time that this request allowed", "allow more time (timeout_s)"
    else:
        asked = f"; this request asked for {requested:g} s, more than is allowed" if requested is not None else ""
        whose, more = f"the limit for its server{asked}", f"raise {limited_by}"
    return ServerTimeout(
        f"{call.tool.tool_id} did not answer within {limit:g} s, {whose}",
        server=call.tool.server,
        next_action=f"ask it for less, or {more}; it may have done its work all the same",
    )
