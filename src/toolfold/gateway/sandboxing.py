"""What the gateway tells about the sandbox: which layers confine scripts here, tried with real attacks.

Above: `toolfold doctor`. Below: `toolfold.sandbox.probing`.
"""

from toolfold.sandbox.probing import AttackResult, Confinement, probe


async def confinement(*, namespaces: bool = True) -> Confinement:
    """Attacks a confined child in every way of a short list, and reports; `namespaces=False` tries the rest alone."""
    return await probe(namespaces=namespaces)


__all__ = ["AttackResult", "Confinement", "confinement"]
