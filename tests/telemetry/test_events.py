"""Events reach those who listen, to all of them or to one name, and a listener that fails is dropped."""

import pytest

from toolfold.events import Event, Events


def test_a_listener_hears_everything_or_one_name() -> None:
    events, everything, some = Events(), list[str](), list[str]()
    end_all = events.subscribe(lambda event: everything.append(event.name))
    end_one = events.subscribe(lambda event: some.append(event.name), only="call.failed")
    events.emit("call.failed")
    events.emit("call.finished")
    end_all()
    events.emit("call.failed")
    end_one()
    end_one()
    events.emit("call.failed")
    assert (everything, some) == (["call.failed", "call.finished"], ["call.failed", "call.failed"])


@pytest.mark.parametrize("only", ["", "tick"])
def test_a_listener_that_raises_is_told_of_once_and_dropped(only: str, caplog: pytest.LogCaptureFixture) -> None:
    events, heard = Events(), list[Event]()

    def broken(event: Event) -> None:
        heard.append(event)
        raise ValueError("odd")

    events.subscribe(broken, only=only)
    events.emit("tick")
    events.emit("tick")
    assert len(heard) == 1
    assert "was removed" in caplog.text
