"""Toolfold's own agent on the same tasks: its planner, its prompts, its commands, without `toolfold serve` between."""

import time
from pathlib import Path

from benchmarks.agent.loop import Bounds, Played, count_output, count_sent
from benchmarks.agent.world import World
from toolfold.agent.budgets import Budgets
from toolfold.agent.definition import AgentDefinition
from toolfold.config import Settings
from toolfold.errors import ToolfoldError
from toolfold.gateway import Gateway
from toolfold.model import Model, Prompt, Reply


class Counted:
    """A model whose prompts and answers are counted as those of the bare loop are."""

    def __init__(self, model: Model, played: Played, bounds: Bounds) -> None:
        self._model = model
        self._played = played
        self.name = model.name
        self.context_tokens = model.context_tokens
        self.max_output_tokens = min(model.max_output_tokens, bounds.answer_tokens or model.max_output_tokens)
        self.calls_tools = model.calls_tools
        self.count_tokens = model.count_tokens

    async def complete(self, prompt: Prompt) -> Reply:
        count_sent(self._played, prompt)
        reply = await self._model.complete(prompt)
        count_output(self._played, reply)
        return reply


async def play_agent(model: Model, world: World, home: Path, task: str, bounds: Bounds) -> Played:
    """One run of the agent. A run that gives up is told by its ending."""
    played = Played()
    started = time.perf_counter()
    definition = AgentDefinition(budgets=Budgets(steps=bounds.turns, seconds=bounds.seconds))
    try:
        async with Gateway(Settings(servers=world.servers(), home=home)) as gateway:
            report = await gateway.agent(model=Counted(model, played, bounds), definition=definition).run(task)
    except ToolfoldError as error:
        played.ending = f"agent_error: {error.message[:200]}"
    else:
        played.answer, played.calls = report.text, report.calls
        played.ending = "answered" if report.ending == "finished" else f"{report.ending}: {report.text[:200]}"
    played.seconds = time.perf_counter() - started
    return played
