"""Logs of machines: which are meant, how they are printed and saved, what is refused."""

import pytest

from skyward_nb.logs.node_log import AgentLog, NodeLog
from skyward_nb.reports.node_logs import (
    logs_elsewhere,
    node_logs,
    print_nodes,
    save_nodes,
    which_pool,
)
from skyward_nb.words.errors import OptionError


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    """Three hosts, of which the first failed and the third took its place."""
    monkeypatch.setenv("SKYWARD_LOG_DIR", str(tmp_path / "logs"))
    monkeypatch.setenv("SKYWARD_RUNTIME_DIR", str(tmp_path / "run"))
    log = NodeLog("p-aaaaaa")
    for host, nodes in (("gpu1", (0,)), ("fd00::2", (1,)), ("gpu3", (0,))):
        log.say(host, (), "login", f"in at {host}")
        log.say(host, nodes, "login", f"it is to be node {nodes[0]}")
    log.close()


def found(which, logs=()):
    return node_logs("p-aaaaaa", which, lambda: logs)


@pytest.mark.parametrize(
    ("which", "hosts"),
    [
        ("all", ["gpu1", "fd00::2", "gpu3"]),
        ("0", ["gpu1", "gpu3"]),
        ("head", ["gpu1", "gpu3"]),
        ("1", ["fd00::2"]),
        ("fd00::2", ["fd00::2"]),
        ("gpu3", ["gpu3"]),
        ("gpu3,1", ["fd00::2", "gpu3"]),
        ("0-1", ["gpu1", "fd00::2", "gpu3"]),
        ("1:", ["fd00::2"]),
    ],
)
def test_machines_go_by_number_and_by_name(which, hosts):
    logs = found(which)
    assert [*logs.hosts] == hosts
    assert {word.host for word in logs.words} == {*hosts}


@pytest.mark.parametrize("which", ["2", "gpu9", "0,gpu9", "x-y", ""])
def test_machines_that_are_not_there_are_an_error_with_those_that_are(which):
    with pytest.raises(OptionError) as raised:
        found(which)
    assert "has gpu1 (node 0), fd00::2 (node 1), gpu3 (node 0); write all" in raised.value.message
    assert raised.value.option == "node"


def test_they_are_printed_with_time_and_part(capsys):
    print_nodes(found("gpu3", [AgentLog("gpu3", (0,), "died\nof age")]), None)
    first, second, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("[gpu3] ") and first.endswith(" login: in at gpu3")
    assert len(first.split()[1]) == len("12:00:00")
    assert second.endswith("login: it is to be node 0")
    assert rest == ["[gpu3] agent.log: died", "[gpu3] agent.log: of age"]
    print_nodes(found("gpu3"), 1)
    assert capsys.readouterr().out == second + "\n"


def test_what_a_notebook_prints_is_bounded(capsys):
    print_nodes(found("all"), None, most=40)
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.endswith("%sky logs node=all pool=p-aaaaaa save=FILE writes all")
    assert 0 < len(rest) < 6


def test_the_heading_names_hosts_and_nodes():
    logs = found("all")
    now = max(word.when for word in logs.words)
    said = "nodes of pool p-aaaaaa, 5 s ago: gpu1 (node 0), fd00::2 (node 1), gpu3 (node 0)"
    assert logs.heading(now + 5.5) == said


def test_they_are_saved(tmp_path):
    told = save_nodes(found("1"), tmp_path / "log")
    assert told.startswith("2 lines, ") and "on fd00::2 (node 1) are in" in told
    assert len((tmp_path / "log").read_text().splitlines()) == 2
    with pytest.raises(OptionError, match="this file exists already"):
        save_nodes(found("1"), tmp_path / "log")


def test_where_nothing_was_said_that_is_said(capsys):
    logs = node_logs("p-bbbbbb", "0", lambda: [AgentLog("local", (0, 1), "")])
    assert logs.hosts == {"local": (0, 1)}
    print_nodes(logs, None)
    assert "no log is kept of node=0 of pool p-bbbbbb" in capsys.readouterr().out


def test_which_pool_is_meant():
    NodeLog("q-bbbbbb").close()
    later = NodeLog("q-cccccc")
    later.say("gpu1", (0,), "login", "in")
    later.close()
    assert which_pool(None) == which_pool("q") == which_pool("q-cccccc") == "q-cccccc"
    assert which_pool("p") == "p-aaaaaa"
    with pytest.raises(OptionError, match=r"of pool 'r'; there is q-cccccc, p-aaaaaa"):
        which_pool("r")
    assert logs_elsewhere("q-cccccc") == []
