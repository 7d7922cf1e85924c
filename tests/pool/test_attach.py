"""A client that goes and comes, or another one: the pool goes on, no word missing and none twice."""

from __future__ import annotations

import os
import random
import signal
import threading
import time

import psutil
import pytest
from pools import follow, found, paused, request, start, values
from waiting import until

from skyward_nb.pickling.payload import unpack
from skyward_nb.pool import registry
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import Output, Phase, RankLost
from skyward_nb.providers.folders import runtime_root
from skyward_nb.providers.local import LocalProvider
from skyward_nb.words.errors import PoolError
from skyward_nb.words.spec import PoolSpec

COUNTS = "import time\nfor i in range(200):\n    print(i, flush=True)\n    time.sleep(0.005)\n'end'"
COUNTED = "".join(f"{i}\n" for i in range(200))


def is_listed(pool):
    return pool.pool_id in {entry.pool_id for entry in registry.entries()}


def texts(events):
    """What each rank printed."""
    said = {}
    for event in events:
        if isinstance(event, Output):
            said[event.rank] = said.get(event.rank, "") + event.text
    return said


def test_another_client_goes_on_with_a_run_from_its_beginning(make):
    first = make()
    first.begin(request(first, COUNTS), lambda _: None)
    time.sleep(0.3)
    first.leave()
    second = found(first)
    second.attach(lambda _: None)
    heard = []
    outcome = follow(second, heard.append)
    assert [unpack(end.value, second.store) for end in outcome.done.values()] == ["end", "end"]
    assert texts(heard) == {0: COUNTED, 1: COUNTED}
    assert values(second, "i") == [199, 199]
    second.close()


@pytest.mark.extensive
def test_all_of_a_flood_that_nobody_read_is_told(make):
    first = make()
    flood = "for i in range(120): print(('x' * 99 + '\\n') * 999 + str(i))"
    first.begin(request(first, flood), lambda _: None)
    first.leave()
    until(lambda: (now := registry.condition(first.entry)) and not now.running)
    second = found(first)
    second.attach(lambda _: None)
    heard = []
    follow(second, heard.append)
    said = "".join(f"{'x' * 99}\n" * 999 + f"{i}\n" for i in range(120))
    assert texts(heard) == {0: said, 1: said}
    second.close()


def test_a_run_that_ended_meanwhile_is_told_whole_until_it_is_seen(make):
    first = make()
    first.begin(request(first, COUNTS), lambda _: None)
    first.leave()
    until(lambda: (now := registry.condition(first.entry)) and not now.running)
    for _ in range(2):
        later = found(first)
        later.attach(lambda _: None)
        heard = []
        outcome = follow(later, heard.append)
        assert len(outcome.done) == 2
        assert texts(heard) == {0: COUNTED, 1: COUNTED}
        later.leave()
    last = found(first)
    last.attach(lambda _: None)
    follow(last, lambda _: None)
    last.seen()
    assert values(last, "2") == [2, 2]
    last.seen()
    last.leave()
    empty = found(first)
    empty.attach(lambda _: None)
    assert empty.runs.unseen is None
    empty.close()


def test_a_run_whose_ranks_were_begun_anew_since_comes_to_its_end_for_another_client(make):
    first = make()
    dies = "import os\nfrom skyward_nb import instance_info\nif instance_info().rank: os._exit(3)"
    assert first.run(request(first, dies), lambda _: None).began_anew
    first.leave()  # before it said that it had seen that run
    second = found(first)
    second.attach(lambda _: None)
    assert (second.runs.unseen.generation, second.generation) == (1, 2)
    ended = []
    thread = threading.Thread(
        target=lambda: ended.append(follow(second, lambda _: None)), daemon=True
    )
    thread.start()
    thread.join(60)
    assert ended[0].lost[1].how == "exited with code 3"
    assert values(second, "2") == [2, 2]
    second.close()


def test_a_run_that_ended_in_time_is_not_late_for_who_comes_late(make):
    first = make()
    began = time.time()
    first.begin(request(first, "5", timeout=0.5, began=began), lambda _: None)
    first.leave()
    until(lambda: registry.condition(first.entry).unseen)  # it has begun there
    until(lambda: (now := registry.condition(first.entry)) and not now.running)
    until(lambda: time.time() > began + 0.8)
    second = found(first)
    second.attach(lambda _: None)
    outcome = follow(second, lambda _: None)
    assert (outcome.timed_out, len(outcome.done)) == (False, 2)
    second.close()


def test_a_second_client_is_refused_and_told_who_is_there(lend):
    pool = lend()
    with pytest.raises(PoolError, match=f"in use by the kernel .process {os.getpid()}"):
        found(pool).attach(lambda _: None)
    assert values(pool, "1") == [1, 1]


def test_who_was_cut_off_and_had_its_place_taken_does_not_say_again_what_it_said(make, tmp_path):
    first = make(nodes=1)
    values(first, "0")
    count = tmp_path / "count"
    body = f"import time\nwith open({str(count)!r}, 'a') as file: file.write('x')\ntime.sleep(0.5)"
    going = first.begin(request(first, body), lambda _: None)
    until(count.exists)  # else the command may go with the line
    first.lines.links[0]._socket.shutdown(2)
    time.sleep(0.2)
    second = found(first)
    second.attach(lambda _: None)
    follow(second, lambda _: None)
    second.leave()
    with pytest.raises(PoolError, match=r"was taken over by the kernel .*sky attach"):
        first.finish(going, lambda _: None)
    third = found(first)
    third.attach(lambda _: None)
    assert values(third, "1") == [1]
    third.close()
    assert count.read_text() == "x"


@pytest.mark.extensive
def test_lines_that_are_cut_at_any_moment_lose_nothing(lend):
    pool = lend()
    dice = random.Random(7)
    for _ in range(5):
        heard = []
        going = pool.begin(request(pool, COUNTS), heard.append)
        over = threading.Event()

        def cut(over=over):
            while not over.wait(dice.uniform(0.01, 0.2)):
                link = pool.lines.links[0]
                if link._socket is not None:
                    link._socket.shutdown(2)

        thread = threading.Thread(target=cut)
        thread.start()
        outcome = pool.finish(going, heard.append)
        over.set()
        thread.join()
        assert len(outcome.done) == 2
        assert texts(heard) == {0: COUNTED, 1: COUNTED}
        assert values(pool, "3") == [3, 3]


def test_an_agent_that_is_stopped_is_told_of_and_waited_for(make):
    pool = make(heartbeat=0.2)
    agent = registry.condition(pool.entry).pid
    os.kill(agent, signal.SIGSTOP)
    heard = []

    def watch(event):
        heard.append(event)
        if isinstance(event, Phase) and "has not answered" in event.text:
            os.kill(agent, signal.SIGCONT)

    late = threading.Timer(60, os.kill, (agent, signal.SIGCONT))  # where that is never told
    late.start()
    outcome = pool.run(request(pool, "5"), watch)
    late.cancel()
    assert [unpack(end.value, pool.store) for end in outcome.done.values()] == [5, 5]
    told = [event.text for event in heard if isinstance(event, Phase)]
    assert any("has not answered" in text for text in told)
    assert told[-1] == ""


def test_who_will_not_wait_for_a_machine_may_go(make):
    pool = make(heartbeat=0.2)
    agent = registry.condition(pool.entry).pid
    os.kill(agent, signal.SIGSTOP)
    told = []

    def watch(event):
        if not told and isinstance(event, Phase) and "has not answered" in event.text:
            told.append(event)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(PoolError, match=r"cannot be reached: .*sky attach"):
        pool.run(request(pool, "import time; time.sleep(0.1); 6"), watch)
    os.kill(agent, signal.SIGCONT)
    again = found(pool)
    again.attach(lambda _: None)
    assert values(again, "6") == [6, 6]
    again.close()


def test_a_folder_that_others_may_enter_is_no_pool_of_this_user(make):
    pool = make()
    folder = runtime_root() / pool.pool_id
    folder.chmod(0o777)
    assert not is_listed(pool)
    pool.leave()
    other = Pool(PoolSpec(nodes=2), LocalProvider(), lambda _: None, pool_id=pool.pool_id)
    with pytest.raises(PoolError, match="is gone"):
        other.attach(lambda _: None)
    folder.chmod(0o700)
    again = found(pool)
    again.attach(lambda _: None)
    again.close()


def test_ranks_that_are_never_ready_after_a_death_do_not_hold_up_an_interrupt(lend, monkeypatch):
    pool = lend()
    forge = psutil.Process(registry.condition(pool.entry).pid).children()[0]
    stopped, interrupts = [], []
    begin = pool.context.generations.begin

    def watch(event):
        if isinstance(event, RankLost) and not stopped:
            stopped.append(forge.suspend())

    def begun(*args, **options):
        over = threading.Event()

        def interrupt():
            # In its first second, which may begin late here, one may still have been meant for the run.
            for seconds in (2, 10, 10, 10):
                if over.wait(seconds):
                    return
                interrupts.append(seconds)
                os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            return begin(*args, **options)
        finally:
            over.set()
            thread.join()

    monkeypatch.setattr(pool.context.generations, "begin", begun)
    body = "import os, skyward_nb as sky\nif sky.instance_info().rank: os._exit(3)"
    assert pool.run(request(pool, body), watch).lost[1].how == "exited with code 3"
    assert not pool.is_ready
    assert len(interrupts) <= 2
    monkeypatch.undo()
    forge.resume()
    assert values(pool, "1") == [1, 1]


@pytest.mark.extensive
def test_a_pool_ends_when_its_time_is_over(make, no_leaks):
    pool = make(ttl=6)
    with pytest.raises(PoolError, match="its time is over"):
        pool.run(request(pool, "import time; time.sleep(60)"), lambda _: None)
    assert pool.closed


def test_a_pool_without_a_client_ends_after_its_idle_time(no_leaks):
    pool = start(idle=0.5)
    pool.leave()
    now = registry.condition(pool.entry)
    assert now is None or now.left <= 0.5
    until(lambda: registry.condition(pool.entry) is None)
    until(lambda: not is_listed(pool))


def test_a_run_goes_on_beside_what_the_main_thread_does(lend):
    pool = lend()
    body = "import time; time.sleep(60)"
    going = pool.begin(request(pool, body, detached=True), lambda _: None)
    ended = []
    thread = threading.Thread(target=lambda: ended.append(pool.finish(going, lambda _: None)))
    thread.start()
    with pytest.raises(PoolError, match="running another cell"):
        pool.run(request(pool, "1"), lambda _: None)
    pool.interrupt()
    thread.join(60)
    assert ended[0].interrupted
    assert values(pool, "1") == [1, 1]


def test_a_pool_found_is_closed_by_whoever_found_it(no_leaks):
    pool = start()
    pool.leave()
    other = Pool(PoolSpec(nodes=2), LocalProvider(), lambda _: None, pool_id=pool.pool_id)
    other.attach(lambda _: None)
    other.close()


def test_a_pool_whose_ranks_are_all_gone_is_attached_and_begins_anew(make):
    first = make()
    for pid in first.pids.values():
        os.kill(pid, signal.SIGKILL)
    until(lambda: not registry.condition(first.entry).ranks)
    first.leave()
    second = found(first)
    second.attach(lambda _: None)
    assert values(second, "1") == [1, 1]
    second.close()


def test_the_time_between_cells_is_no_silence(lend):
    pool = lend()
    paused(pool, 61)
    heard = []
    pool.look(heard.append)
    pool.run(request(pool, "5"), heard.append)
    assert not [each for each in heard if isinstance(each, Phase) and "answer" in each.text]
