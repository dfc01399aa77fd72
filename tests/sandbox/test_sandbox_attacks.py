"""Every attack, in every way of confinement that this machine has: none gains anything, no canary is touched."""

import pytest
from sandbox_attacks import FILES, KERNEL, NETWORK, PROCESSES, Attack
from sandbox_escapes import ESCAPES
from sandbox_lab import CONFINED, Lab

ALL = [attack for attack in (*ESCAPES, *FILES, *NETWORK, *PROCESSES, *KERNEL) if attack.runs_here]
DEFEATS = (None, "PermissionError", "OSError", "FileNotFoundError", "ProcessLookupError", "gaierror")


@pytest.mark.requirement("U-10")
@pytest.mark.parametrize("way", CONFINED)
@pytest.mark.parametrize("attack", ALL, ids=lambda attack: attack.name)
def test_gains_nothing(lab: Lab, attack: Attack, way: str) -> None:
    outcome = lab.attack(way, attack.code)
    answer = outcome.answer
    if answer is not None:  # none: the attack took its own process, and nothing else
        assert answer.get("error") or not answer["result"], answer
        assert answer.get("error") in DEFEATS, answer
        assert lab.canaries.token not in str(answer)
    lab.canaries.assert_whole()


@pytest.mark.parametrize("attack", [attack for attack in ALL if attack.controlled], ids=lambda attack: attack.name)
def test_the_same_attack_gains_in_a_process_that_is_not_confined(lab: Lab, attack: Attack) -> None:
    outcome = lab.attack("unsafe", attack.code)
    assert outcome.layers == ()
    lab.canaries.knocked()
    gained = outcome.answer is None or outcome.answer.get("result")
    assert gained, outcome.answer
