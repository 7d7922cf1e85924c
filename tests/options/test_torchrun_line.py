"""Lines of torchrun: its options as it takes them, those of a pool, the script and its arguments."""

from __future__ import annotations

import pytest
from later import needs

from skyward_nb.options.torchrun_line import FLAGS, VALUED, read_torchrun
from skyward_nb.words.errors import OptionError


def read(line):
    return read_torchrun(line.split(), "skyward-nb torchrun")


@pytest.mark.parametrize(
    ("line", "options", "nodes"),
    [
        ("--nnodes=2 --nproc-per-node=4 main.py", {"nnodes": "2", "nproc-per-node": "4"}, (2, 2)),
        ("--nproc_per_node 4 main.py", {"nproc-per-node": "4"}, (1, 1)),
        ("--nnodes 1:4 --rdzv_id $ID main.py", {"nnodes": "1:4", "rdzv-id": "$ID"}, (1, 4)),
        ("--standalone --nproc=auto main.py", {"standalone": "", "nproc-per-node": "auto"}, (1, 1)),
        ("-r 3 -t0:1,1:2 main.py", {"redirects": "3", "tee": "0:1,1:2"}, (1, 1)),
        ("-m main.py", {"module": ""}, (1, 1)),
        ("-- main.py", {}, (1, 1)),
    ],
)
def test_options_are_read_as_torchrun_reads_them(line, options, nodes):
    found = read(f"{line} --nnodes 9 nodes=3")
    assert (found.options, found.nodes, found.script) == (options, nodes, "main.py")
    assert found.arguments == ("--nnodes", "9", "nodes=3")


def test_options_of_the_pool_stand_among_them():
    found = read("hosts=a,b --nnodes=2 pool=train keep main.py m.shape=[[2,2],[a,b]]")
    assert found.pool_words == ("hosts=a,b", "pool=train", "keep")
    assert found.arguments == ("m.shape=[[2,2],[a,b]]",)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "a script is missing: skyward-nb torchrun"),
        ("--nnodes=2", "a script is missing"),
        ("--nnodes", "--nnodes needs a value"),
        ("--nnodes=two main.py", "write a number, or MIN:MAX"),
        ("--nnodes=4:2 main.py", "MIN not above MAX"),
        ("--nnodes=0 main.py", "at least 1"),
        ("--standalone --nnodes=2 main.py", "--standalone is for one node"),
        ("--standalone=yes main.py", "--standalone takes no value"),
        ("--nproc-per-node=many main.py", "write a number, auto, cpu, gpu or xpu"),
        ("--nproc-per-node=0 main.py", "write a number"),
        ("--max-restarts=-1 main.py", "write a whole number"),
        ("--start-method=thread main.py", "write spawn, fork or forkserver"),
        ("--master=a main.py", "--master may be --master-addr, --master-port"),
        ("--nodes=2 main.py", "for the pool, write nodes=..."),
        ("--maxrestarts=2 main.py", "torchrun has no option --maxrestarts"),
        ("-x main.py", "torchrun has no option -x"),
        ("nodes=many main.py", "nodes"),
    ],
)
def test_what_is_wrong_is_said_before_anything_begins(line, says):
    with pytest.raises(OptionError, match=says):
        read(line)


@pytest.mark.torch
@needs("torch")
def test_the_table_is_torchs_own():
    from torch.distributed.run import get_args_parser

    known = {
        string.removeprefix("--"): action
        for action in get_args_parser()._actions
        for string in action.option_strings
        if string.startswith("--") and "_" not in string and string != "--help"
    }
    flags = {name for name, action in known.items() if action.nargs == 0}
    # Older releases have fewer.
    assert flags <= {*FLAGS}
    assert known.keys() - flags <= {*VALUED}
    assert {"nnodes", "max-restarts", "tee"} <= known.keys()
