"""The limits of ranks: how they are spelt, and which processors each rank gets."""

import pytest

from skyward_nb.options.option_line import parse
from skyward_nb.options.specs import check_fits, spec_of
from skyward_nb.words.errors import OptionError, PoolError
from skyward_nb.words.rank_limits import RankLimits, own_cpus
from skyward_nb.words.spec import PoolSpec


@pytest.mark.parametrize(
    ("number", "count", "first", "found"),
    [
        (0, 2, 0, (4, 5)),
        (1, 2, 0, (6, 7)),
        (2, 2, 0, (4, 5)),
        (0, 2, 3, (4, 7)),
        (1, 3, 0, (4, 5, 7)),
        (0, 9, 1, (4, 5, 6, 7)),
    ],
)
def test_neighbours_have_different_processors_while_there_are_any(number, count, first, found):
    assert own_cpus((4, 5, 6, 7), number, count, first) == found


def test_limits_are_read_and_spelt_as_they_are_written():
    spec = spec_of(PoolSpec(), parse("nodes=2 memory_limit=2GB cpu_limit=1").pool)
    assert spec.limits == RankLimits(2_000_000_000, 1)
    assert str(spec) == "2 ranks, memory_limit=2GB, cpu_limit=1 (local)"
    none = spec_of(PoolSpec(), parse("memory_limit=none cpu_limit=none").pool)
    assert none == PoolSpec()


@pytest.mark.parametrize("line", ["memory_limit=much", "memory_limit=0", "cpu_limit=0.5"])
def test_what_is_no_limit_is_refused(line):
    with pytest.raises(OptionError, match="give a"):
        parse(line)


def test_a_pool_with_another_limit_is_another_pool():
    spec = PoolSpec(memory_limit=500_000_000)
    with pytest.raises(PoolError, match=r"with memory_limit=500MB, and memory_limit=2GB was asked"):
        check_fits(spec, parse("memory_limit=2GB").pool)
    check_fits(spec, parse("memory_limit=500MB").pool)
