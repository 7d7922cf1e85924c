"""What is said of machines is kept on disk, beside runs and within the same bounds."""

import stat

import pytest

from skyward_nb.logs import node_log
from skyward_nb.logs.log_files import NODES, LogLimits, kept, part_path, pools, runs, sweep
from skyward_nb.logs.log_reader import MissingOutput, read_nodes
from skyward_nb.logs.node_log import NodeLog
from skyward_nb.words.node_log_entry import NodeLogEntry, node_log_entries


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_LOG_DIR", str(tmp_path / "logs"))
    return tmp_path / "logs"


def texts(pool_id):
    return [word.text for word in read_nodes(pool_id)]


def test_words_come_back_in_order_with_their_times():
    log = NodeLog("p-1")
    log.write(NodeLogEntry(host="gpu1", when=5.0, part="login", text="in"))
    log.close()
    log.say("gpu2", (1,), "agent.log", "one\ntwo")
    log.close()
    first, *rest = read_nodes("p-1")
    assert first == NodeLogEntry(host="gpu1", when=5.0, part="login", text="in")
    assert [(word.host, word.nodes, word.text) for word in rest] == [
        ("gpu2", (1,), "one"),
        ("gpu2", (1,), "two"),
    ]
    assert log.hosts == {"gpu1", "gpu2"}
    assert not log.trouble
    path = part_path("p-1", NODES, 0)
    assert path.name == "nodes.log"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_is_no_run_and_goes_as_runs_do(root):
    log = NodeLog("p-1")
    log.say("gpu1", (0,), "login", "in")
    log.close()
    assert runs() == []
    assert [each.pool_id for each in pools()] == ["p-1"]
    sweep(0, 0)
    assert not [*root.iterdir()]
    assert texts("p-1") == []


def test_nothing_is_on_disk_before_something_is_said(root):
    NodeLog("p-1").close()
    assert not root.exists()


def test_no_password_of_an_address_is_kept():
    words = node_log_entries("gpu1", "environment", "for url (https://me:hunter2@host/simple)", 1.0)
    assert [word.text for word in words] == ["for url (https://***@host/simple)"]


def test_much_of_it_keeps_its_beginning_and_its_end(monkeypatch):
    monkeypatch.setattr(node_log, "_LIMITS", LogLimits(head=2000, part=2000, parts=2))
    log = NodeLog("p-1")
    for number in range(500):
        log.say("gpu1", (0,), "environment", f"line {number}")
        log.close()
    found = [*read_nodes("p-1")]
    said = [word.text for word in found if isinstance(word, NodeLogEntry)]
    assert said[0] == "line 0" and said[-1] == "line 499"
    assert len(said) < 400
    (missing,) = [each for each in found if isinstance(each, MissingOutput)]
    assert missing.text.endswith("lines are not kept")
    assert kept("p-1", NODES).size < 8000


def test_what_cannot_be_written_is_told_and_breaks_nothing(root):
    root.write_text("not a folder")
    log = NodeLog("p-1")
    log.say("gpu1", (0,), "login", "in")
    log.close()
    assert str(root) in log.trouble
    log.say("gpu1", (0,), "login", "again")
    log.close()


def test_a_file_that_is_damaged_is_read_as_far_as_it_goes():
    log = NodeLog("p-1")
    log.say("gpu1", (0,), "login", "in")
    log.close()
    with part_path("p-1", NODES, 0).open("ab") as file:
        file.write(b"\x00\x00\x00\x02no")
    word, missing = read_nodes("p-1")
    assert word.text == "in"
    assert "is damaged after" in missing.text
