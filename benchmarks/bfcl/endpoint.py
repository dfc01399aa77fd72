"""A model behind any endpoint with OpenAI's chat completions, asked for the same answer each time."""

from typing import Any

from msgspec.structs import replace

from toolfold.config.sections import Model as ModelSettings
from toolfold.model import Model, Prompt
from toolfold.models.openai_compatible import OpenAICompatible
from toolfold.models.retry import RetryingModel


class SeededModel(OpenAICompatible):
    """Sends a seed with every request, and temperature 0 where the configuration names none."""

    seed = 0

    @classmethod
    def create(cls, settings: ModelSettings, seed: int) -> Model:
        model = cls.from_settings(replace(settings, temperature=settings.temperature or 0.0), settings.name or "")
        assert isinstance(model, SeededModel)
        model.seed = seed
        return RetryingModel(model)

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        return super()._body(prompt) | {"seed": self.seed}
