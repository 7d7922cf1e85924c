"""Meshes as words, and the parts of data that belong to their places."""

import itertools

import pytest

from skyward_nb.words.errors import OptionError
from skyward_nb.words.mesh import parse_mesh, part_of, size_of, spell_mesh, uneven


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("fsdp:4", (("fsdp", 4),)),
        ("fsdp:2,tp:2", (("fsdp", 2), ("tp", 2))),
        (" dp:2 , fsdp : 1,tp:3 ", (("dp", 2), ("fsdp", 1), ("tp", 3))),
        ('[[2,2],["fsdp","tp"]]', (("fsdp", 2), ("tp", 2))),
        (" [ [4] , ['x'] ] ", (("x", 4),)),
        ("[[2,1],[fsdp,tp]]", (("fsdp", 2), ("tp", 1))),
    ],
)
def test_both_forms(text, axes):
    assert parse_mesh(text) == axes
    assert parse_mesh(spell_mesh(axes)) == axes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "write its axes"),
        ("4", "write its axes"),
        ("fsdp:two", "write its axes"),
        ("fsdp:2,", "write its axes"),
        ("[[2,2],[fsdp]]", "write its axes"),
        ("[[2,2]]", "write its axes"),
        ("[[2],[fsdp]", "write its axes"),
        (":2", "not an axis name"),
        ("2d:2", "not an axis name"),
        ("tp:2,tp:2", "listed twice"),
        ("tp:0", "size of 1 or more"),
        ("tp:-1", "size of 1 or more"),
    ],
)
def test_what_is_no_mesh(text, says):
    with pytest.raises(OptionError, match=says):
        parse_mesh(text)


@pytest.mark.parametrize(
    ("text", "world", "parts"),
    [
        ("fsdp:4,tp:1", 4, [(0, 4), (1, 4), (2, 4), (3, 4)]),
        ("fsdp:2,tp:2", 4, [(0, 2), (0, 2), (1, 2), (1, 2)]),
        ("tp:2,fsdp:2", 4, [(0, 2), (1, 2), (0, 2), (1, 2)]),
        ("fsdp:1,tp:4", 4, [(0, 1)] * 4),
        ("dp:2,fsdp:2", 4, [(0, 4), (1, 4), (2, 4), (3, 4)]),
        ("dp:2,tp:2,fsdp:2", 8, [(0, 4), (1, 4), (0, 4), (1, 4), (2, 4), (3, 4), (2, 4), (3, 4)]),
        # Two devices for each rank.
        ("fsdp:4,tp:2", 4, [(0, 4), (1, 4), (2, 4), (3, 4)]),
        ("fsdp:4,tp:1", 2, [(0, 2), (1, 2)]),
        ("fsdp:2,tp:4", 4, [(0, 2), (0, 2), (1, 2), (1, 2)]),
        ("dp:2,tp:2,fsdp:3", 4, [(0, 2), (0, 2), (1, 2), (1, 2)]),
    ],
)
def test_the_part_of_the_data_of_each_rank(text, world, parts):
    axes = parse_mesh(text)
    assert size_of(axes) % world == 0
    assert not uneven(axes, world)
    assert [part_of(axes, rank, world) for rank in range(world)] == parts


def test_without_a_mesh_each_rank_has_its_part():
    assert [part_of((), rank, 3) for rank in range(3)] == [(0, 3), (1, 3), (2, 3)]


@pytest.mark.parametrize(
    ("text", "world", "why"),
    [
        ("fsdp:4,tp:3", 3, "of the 4 parts of the data rank 0 has 0, 1; rank 1 has 1, 2"),
        ("tp:2,fsdp:3", 3, "of the 3 parts of the data rank 0 has 0, 1; rank 1 has 0, 2"),
        ("fsdp:3,tp:4", 2, "of the 3 parts of the data rank 0 has 0, 1; rank 1 has 1, 2"),
    ],
)
def test_ranks_whose_devices_straddle_parts(text, world, why):
    assert uneven(parse_mesh(text), world) == why


def test_a_mesh_is_even_or_no_part_is_left_out_or_taken_twice():
    """Ranks that take the same part take all of it; together they take every one."""
    for sizes in itertools.product((1, 2, 3, 4), repeat=3):
        for names in itertools.permutations(("dp", "fsdp", "tp")):
            axes = tuple(zip(names, sizes, strict=True))
            for world in range(1, size_of(axes) + 1):
                if size_of(axes) % world or uneven(axes, world):
                    continue
                parts = [part_of(axes, rank, world) for rank in range(world)]
                (count,) = {count for _, count in parts}
                assert {index for index, _ in parts} == set(range(count))
