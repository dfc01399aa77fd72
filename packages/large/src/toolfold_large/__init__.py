"""The weights of toolfold's large encoder, and nothing else: `search.encoder = "large"` finds them here."""

from pathlib import Path

WEIGHTS = Path(__file__).parent / "weights"
