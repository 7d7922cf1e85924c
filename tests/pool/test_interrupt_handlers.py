"""What SIGINT does where our code must not be left in the middle."""

import contextlib
import signal
import threading

import pytest

from skyward_nb.functions import told_to_end
from skyward_nb.pool.event_selector import EventSelector
from skyward_nb.pool.interrupt_handlers import PutOff, calm


def interrupt():
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def _as_before():
    """The handler is the same again, whatever comes."""
    before = signal.getsignal(signal.SIGINT)
    yield
    after = signal.signal(signal.SIGINT, before)
    assert after is before


def test_an_interrupt_waits_until_what_is_inside_is_over():
    done = []
    with pytest.raises(KeyboardInterrupt), PutOff():
        interrupt()
        interrupt()
        done.append("all of it")
    assert done


def test_an_interrupt_that_was_put_off_comes_where_it_is_looked_for():
    with PutOff() as waiting, pytest.raises(KeyboardInterrupt):
        waiting.check()
        interrupt()
        waiting.check()


def test_an_interrupt_comes_at_once_where_things_are_as_before():
    given_back = []
    with PutOff() as waiting:
        interrupt()
        with pytest.raises(KeyboardInterrupt), waiting.as_before():
            pytest.fail("it came before")
        with pytest.raises(KeyboardInterrupt), waiting.as_before():
            interrupt()
        assert not waiting.took()
        interrupt()
        assert waiting.took()
        given_back.append("what was taken")
    assert given_back


def test_an_error_of_its_own_comes_instead_of_an_interrupt_that_waits():
    with pytest.raises(LookupError), PutOff():
        interrupt()
        raise LookupError


def test_interrupts_that_others_take_or_put_off_are_theirs():
    board = EventSelector()
    with contextlib.closing(board), board.interrupts(), PutOff() as waiting, waiting.as_before():
        interrupt()
        waiting.check()
        assert board.owes_interrupt
    with calm(), PutOff() as waiting, waiting.as_before():
        interrupt()
    with PutOff() as outer:
        with PutOff() as inner, inner.as_before():
            interrupt()
        assert outer.took() and not inner.took()


def test_a_signal_that_ends_the_program_waits_as_well(monkeypatch):
    monkeypatch.setattr(told_to_end, "_open", {"a pool"})
    with pytest.raises(SystemExit) as ended, PutOff():
        told_to_end._end(signal.SIGTERM, None)
        interrupt()
    assert ended.value.code == 128 + signal.SIGTERM


def test_signals_are_none_of_other_threads():
    found = []

    def elsewhere():
        with PutOff() as waiting, waiting.as_before():
            waiting.check()
            found.append(waiting.is_there)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [False]


def test_a_signal_that_is_ignored_stays_so(monkeypatch):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with PutOff() as waiting, waiting.as_before():
            interrupt()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("kind", ["put off", "events"])
def test_what_is_left_in_the_middle_is_put_right_by_what_is_around_it(kind):
    """An exception may hit `contextlib` itself, before the block that it is about to leave."""
    board = EventSelector()
    with contextlib.closing(board):
        if kind == "events":
            within, inside = board.interrupts(), board.outside()
        else:
            within = PutOff()
            inside = None
        with pytest.raises(LookupError), within as waiting:
            inside = inside or waiting.as_before()
            inside.__enter__()
            raise LookupError
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert not isinstance(signal.getsignal(signal.SIGINT), PutOff)
        inside.__exit__(None, None, None)  # as where it is dropped later
        with board.interrupts():
            interrupt()
        assert board.owes_interrupt
