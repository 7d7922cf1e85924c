"""The run that a thread speaks for."""

import threading

import pytest

from skyward_nb.runtime import event_sink


@pytest.fixture(autouse=True)
def no_run():
    yield
    event_sink.begin(0)


def said_by_a_thread(speak: threading.Event, started: threading.Event):
    said: list[int] = []

    def work():
        started.set()
        speak.wait(5)
        said.append(event_sink.run())

    thread = threading.Thread(target=work)
    thread.start()
    return thread, said


def test_a_thread_speaks_for_the_run_that_started_it():
    speak, started = threading.Event(), threading.Event()
    event_sink.begin(7)
    thread, said = said_by_a_thread(speak, started)
    started.wait(5)
    event_sink.begin(8)
    speak.set()
    thread.join()
    assert said == [7]
    assert event_sink.run() == 8


def test_a_thread_of_the_current_run_speaks_for_it():
    speak, started = threading.Event(), threading.Event()
    event_sink.begin(3)
    speak.set()
    thread, said = said_by_a_thread(speak, started)
    thread.join()
    assert said == [3]
