"""What happens to hosts and lines during a cell, and what its picture shows of it."""

from __future__ import annotations

import threading

OPTIONS = "heartbeat=1s"
"""A host that is silent for three seconds is cut off."""

NOTICED = "trying to reach it again"

COUNT = """
for i in range({count}):
    print('line', i, flush=True)
    time.sleep(0.1)
socket.gethostname()
"""


def during(book, body, then, word="line 5", timeout=200.0):
    """Run a cell; `then` happens soon after its display says this word, and can ask what it says."""
    said = threading.Event()
    texts: list[str] = []
    failed: list[BaseException] = []

    def act():
        try:
            assert said.wait(100)
            then(lambda other: other in texts[-1])
        except BaseException as error:
            failed.append(error)

    def look(text):
        texts.append(text)
        if word in text:
            said.set()

    acting = threading.Thread(target=act)
    acting.start()
    ran = book.cell(body, timeout=timeout, on_update=look)
    acting.join()
    assert not failed, failed
    return ran


def impatient(town):
    """Have a login to a host that does not answer take two seconds, and not twenty.

    That is for when the pool is up: on a busy machine the first logins may take longer.
    """
    town.says["ConnectTimeout"] = 2
    town.introduce()


def whole(ran, count, ranks="[0-1]"):
    """Every line of both ranks is shown, once."""
    assert ran.status == "ok", ran.traceback or ran.picture
    lines = [line for line in ran.picture.splitlines() if "] line" in line]
    shown = [line.partition("] ")[2] for line in lines]
    assert sorted(set(shown), key=lambda each: int(each.split()[1])) == [
        f"line {i}" for i in range(count)
    ]
