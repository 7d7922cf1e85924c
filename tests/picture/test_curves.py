"""Curves of metrics: what is in the picture, seen by reading its SVG; that all of it is in the picture."""

import base64
import itertools
import math
import random
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field

import pytest

from skyward_nb.picture.curves import MOST_LINES, curve, suits_log, title
from skyward_nb.picture.legend import COLOURS, DASHES, MEAN, TEXT
from skyward_nb.picture.scales import Scale, compact, nice_step
from skyward_nb.picture.svg_paths import straightened
from skyward_nb.view.series import Series, extended, mean_of

SVG = "{http://www.w3.org/2000/svg}"


def series(*values, start=0, by=1):
    return extended(Series(), [(start + i * by, value) for i, value in enumerate(values)])


def noisy(seed, count=400):
    draw = random.Random(seed)
    return series(*(2 * math.exp(-i / 90) + draw.gauss(0, 0.2) for i in range(count)))


@dataclass
class Seen:
    """A picture as it was read: its texts, its shapes, and every place that they touch."""

    alt: str
    title: str
    source: bytes
    size: tuple[float, float]
    texts: list[str] = field(default_factory=list)
    shapes: list[dict[str, str]] = field(default_factory=list)
    places: list[tuple[float, float]] = field(default_factory=list)

    def lines(self, stroke):
        return [s for s in self.shapes if s.get("stroke") == stroke and s.get("fill") == "none"]


def path_places(path):
    """The points of a path of M, l, H, V, v, h and z."""
    x = y = 0.0
    for command, rest in re.findall(r"([MlHhVvz])([^MlHhVvz]*)", path):
        numbers = [float(n) for n in re.findall(r"[+-]?(?:\d+\.?\d*|\.\d+|nan|inf)", rest)]
        match command:
            case "M":
                x, y = numbers
            case "l":
                for dx, dy in zip(numbers[::2], numbers[1::2], strict=True):
                    x, y = x + dx, y + dy
                    yield x, y
            case "H":
                x = numbers[0]
            case "h":
                x += numbers[0]
            case "V":
                y = numbers[0]
            case "v":
                y += numbers[0]
            case _:
                pass
        yield x, y


def read(image):
    element = ET.fromstring(image)
    assert element.tag == "img"
    kind, _, coded = element.attrib["src"].partition(",")
    assert kind == "data:image/svg+xml;base64"
    source = base64.b64decode(coded, validate=True)
    root = ET.fromstring(source)
    assert root.tag == f"{SVG}svg"
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    assert (left, top) == (0, 0)
    seen = Seen(element.attrib["alt"], root.find(f"{SVG}title").text or "", source, (width, height))
    walk(root, (0.0, 0.0), seen)
    return seen


def walk(parent, offset, seen):
    for each in parent:
        attributes = each.attrib
        match each.tag.removeprefix(SVG):
            case "g":
                dx, dy = map(float, re.findall(r"[-\d.]+", attributes["transform"]))
                walk(each, (offset[0] + dx, offset[1] + dy), seen)
            case "text":
                seen.texts.append(each.text)
                place = float(attributes.get("x", 0)), float(attributes.get("y", 0))
                seen.places.append((place[0] + offset[0], place[1] + offset[1]))
            case "circle":
                seen.shapes.append(attributes)
                x, y, r = (float(attributes[key]) for key in ("cx", "cy", "r"))
                seen.places += [(x - r, y - r), (x + r, y + r)]
            case "path":
                seen.shapes.append(attributes)
                for x, y in path_places(attributes["d"]):
                    seen.places.append((x + offset[0], y + offset[1]))
            case tag:
                assert tag == "title"


def assert_inside(seen):
    width, height = seen.size
    for x, y in seen.places:
        assert 0 <= x <= width, (x, width)
        assert 0 <= y <= height, (y, height)


# ── what is in the picture ──────────────────────────────────────────────────────────────


def test_each_rank_has_a_thin_line_and_the_mean_a_strong_one():
    seen = read(curve("loss", {rank: noisy(rank) for rank in range(4)}))
    for colour in COLOURS[:4]:
        line, sample = seen.lines(colour), [s for s in seen.shapes if s.get("stroke") == colour]
        assert len(line) == 1
        assert len(sample) == 2  # and one in the legend
        assert line[0]["stroke-width"] == "2"
    assert [line["stroke-width"] for line in seen.lines(MEAN)] == ["4"]
    assert {"rank", "0", "1", "2", "3", "mean", "step"} <= set(seen.texts)
    assert_inside(seen)


def test_one_rank_is_one_strong_line_without_a_legend():
    seen = read(curve("loss", {3: noisy(3)}))
    assert len(seen.lines(MEAN)) == 1
    assert not [s for s in seen.shapes if s.get("stroke") in COLOURS]
    assert "mean" not in seen.texts
    assert "rank 3" in seen.alt


def test_many_ranks_are_a_band_from_lowest_to_highest():
    by_rank = {rank: series(rank, rank + 1.0, rank) for rank in range(MOST_LINES + 1)}
    seen = read(curve("loss", by_rank))
    assert not [s for s in seen.shapes if s.get("stroke") in COLOURS]
    (band,) = [s for s in seen.shapes if "fill-opacity" in s]
    heights = [y for _, y in path_places(band["d"])]
    labels = dict(zip(seen.texts, seen.places, strict=False))
    assert "9" in labels
    assert max(heights) - min(heights) > 0.6 * seen.size[1]
    assert "9 ranks" in seen.alt
    assert "rank" not in seen.texts


def test_a_band_is_never_narrower_than_its_values():
    # One value in a crowd is far from all others: it must still be seen.
    spike = [0.0] * 400
    spike[201] = 100.0
    by_rank = {rank: series(*([0.0] * 400)) for rank in range(20)} | {20: series(*spike)}
    (band,) = [s for s in read(curve("x", by_rank)).shapes if "fill-opacity" in s]
    heights = [y for _, y in path_places(band["d"])]
    assert max(heights) - min(heights) > 150


def test_both_ends_of_both_scales_and_the_newest_mean_are_written():
    texts = read(curve("loss", {0: series(2.31, 1.0, 0.208, start=7, by=10)})).texts
    assert {"2.31", "0.208", "7", "27", "1", "1.5"} <= set(texts)
    assert texts.count("0.208") == 2  # at the scale, and at the line's end


def test_the_mean_ends_where_fewer_than_half_of_the_ranks_are():
    by_rank = {0: series(1, 1, 1), 1: series(3, 3, 3), 2: series(2, 2, 2), 3: series(*[9.0] * 10)}
    assert read(curve("x", by_rank)).alt.startswith(
        "x by step, 4 ranks: the mean is 3.75 at step 0"
    )
    assert "3.75 at step 2," in read(curve("x", by_rank)).alt
    assert title("x", by_rank) == "x · mean 3.75 (1 – 9)"


def test_the_mean_is_that_of_series_also_of_ranks_in_step():
    together = [noisy(seed, 50) for seed in range(12)]
    apart = [*together[:-1], extended(together[-1], [(50, 1.0)])]
    for each in (together, apart):
        last = mean_of(each).means[49]
        assert f"{compact(last, 4)} at step 49" in read(curve("x", dict(enumerate(each)))).alt


def test_a_mean_of_two_ends_with_the_slower():
    by_rank = {0: series(1.0, 2.0), 1: series(3.0, 4.0, 100.0)}
    assert title("x", by_rank) == "x · mean 3 (2 – 4)"


def test_ranks_without_the_metric_have_no_line_and_no_share():
    seen = read(curve("loss", {0: Series(), 1: series(1.0, 2.0), 2: series(3.0, 4.0)}))
    assert "2 ranks" in seen.alt
    assert not [s for s in seen.shapes if s.get("stroke") == COLOURS[0]]
    assert [s for s in seen.shapes if s.get("stroke") == COLOURS[2]]


def test_ranks_of_large_pools_have_colours_that_differ():
    by_rank = {rank: series(float(rank), 1.0) for rank in (0, 8, 16, 24)}
    seen = read(curve("x", by_rank))
    assert all(len(seen.lines(colour)) == 1 for colour in COLOURS[:4])


def test_one_point_is_a_dot():
    seen = read(curve("loss", {0: series(0.5)}))
    dots = [s for s in seen.shapes if "cx" in s]
    assert len(dots) == 1
    assert "0.5 at step 0" in seen.alt
    assert " and " not in seen.alt


def test_one_step_of_several_ranks_is_a_dot_each():
    dots = [
        s for s in read(curve("x", {r: series(r, start=7) for r in range(4)})).shapes if "cx" in s
    ]
    assert [dot["fill"] for dot in dots] == [*COLOURS[:4], MEAN]


def test_one_step_of_many_ranks_is_in_the_picture():
    assert_inside(read(curve("x", {r: series(r, start=7) for r in range(20)})))


def test_values_that_are_not_finite_are_counted():
    by_rank = {0: series(1.0, math.nan, 2.0), 1: series(math.inf, -math.inf, 1.0)}
    seen = read(curve("loss", by_rank))
    assert "3 values are not finite" in seen.alt
    assert "3 not finite" in seen.texts
    only = read(curve("loss", {0: series(math.nan)}))
    assert only.alt == "loss: 1 value is not finite."
    assert only.texts == ["no finite value"]


def test_means_that_became_infinite_are_counted_and_not_drawn():
    seen = read(curve("x", {0: Series(1, (0, 1, 2), (1.0, math.inf, 2.0), (1, 1, 1), 1)}))
    assert "2 values are not finite" in seen.alt
    assert_inside(seen)


@pytest.mark.parametrize("by_rank", [{}, {0: Series()}, {0: Series(), 5: Series()}])
def test_nothing_to_draw_is_said(by_rank):
    seen = read(curve("loss", by_rank))
    assert (seen.alt, seen.texts) == ("loss: no value yet.", ["no value yet"])
    assert title("loss", by_rank) == "loss · no value yet"
    assert_inside(seen)


def test_the_mean_of_huge_values_is_a_number():
    seen = read(curve("x", {rank: series(1.7e308, 1.6e308) for rank in range(12)}))
    assert "the mean is 1.7e308 at step 0 and 1.6e308 at step 1" in seen.alt
    assert len(seen.lines(MEAN)) == 1


def test_names_are_escaped_and_stay_whole():
    name = '<img src=x onerror="alert(1)">&amp;\''
    image = curve(name, {0: series(1.0, 2.0)})
    assert "<img src=x" not in image
    seen = read(image)
    assert seen.title == name
    assert seen.alt.startswith(f"{name} by step")


@pytest.mark.parametrize("name", ["a\x00b", "a\x1b[31m", "\ud800", "\uffff", "x" * 1000])
def test_names_that_xml_cannot_hold_are_drawn_all_the_same(name):
    assert len(read(curve(name, {0: series(1.0)})).title) <= 80


def test_small_pictures_keep_their_room_for_lines():
    for width, height in ((1, 1), (200, 80), (200, 90), (-5, 0), (2000, 600)):
        seen = read(
            curve("x", {rank: noisy(rank, 50) for rank in range(8)}, width=width, height=height)
        )
        assert_inside(seen)
        lines = [line for colour in COLOURS for line in seen.lines(colour)]
        ys = [y for line in lines for _, y in path_places(line["d"])]
        assert max(ys) - min(ys) >= 60


# ── scales ──────────────────────────────────────────────────────────────────────────────


def test_values_over_decades_suit_a_log_scale():
    assert suits_log({0: series(1.0, 60.0)})
    assert suits_log({0: series(1.0), 1: series(1e-3)})
    assert not suits_log({0: series(1.0, 40.0)})
    assert not suits_log({0: series(0.0, 1000.0)})
    assert not suits_log({0: series(-1.0, 1000.0)})
    assert not suits_log({})


def test_a_log_scale_has_decades():
    seen = read(curve("lr", {0: series(*(10.0 ** -(i / 10) for i in range(50)))}, is_log=True))
    assert {"1", "0.1", "0.01", "1e-3", "1e-4"} <= set(seen.texts)
    assert "log scale" in seen.texts
    assert "on a log scale" in seen.alt


@pytest.mark.parametrize("values", [(0.0, 100.0), (-1.0, 5.0), (2.0, 2.0)])
def test_a_log_scale_that_cannot_be_is_a_linear_one(values):
    image = curve("x", {0: series(*values)}, is_log=True)
    assert "log scale" not in read(image).texts
    assert image == curve("x", {0: series(*values)})


@pytest.mark.parametrize(
    ("value", "digits", "like", "text"),
    [
        (0.0, 3, None, "0"),
        (-0.0, 3, None, "0"),
        (0.25, 3, None, "0.25"),
        (0.231, 3, None, "0.231"),
        (1e-3, 1, None, "1e-3"),
        (0.001, 1, 1.0, "0.001"),
        (0.005, 3, 0.02, "0.005"),
        (2.34e-5, 3, None, "2.34e-5"),
        (2500, 3, None, "2500"),
        (2500, 2, 12_000, "2.5k"),
        (10_000, 3, None, "10k"),
        (-12_345.0, 3, None, "-12.3k"),
        (3_100_000, 3, None, "3.1M"),
        (10**15, 3, None, "1e15"),
        (1e300, 3, None, "1e300"),
        (5e-324, 2, None, "4.9e-324"),
        (999.96, 3, None, "1000"),
    ],
)
def test_numbers_are_short(value, digits, like, text):
    assert compact(value, digits, like=like) == text


@pytest.mark.parametrize(
    ("span", "most", "step"), [(10, 5, 2), (1, 5, 0.2), (11, 5, 5), (0.3, 3, 0.1)]
)
def test_steps_are_round(span, most, step):
    assert nice_step(span, most) == pytest.approx(step)


@pytest.mark.parametrize(
    ("scale", "texts"),
    [
        (Scale(0, 399), ["0", "100", "200", "300"]),
        (Scale(0.208, 2.31), ["0.5", "1", "1.5", "2"]),
        (Scale(-1.0, 1.0), ["-1", "-0.5", "0", "0.5", "1"]),
        (Scale(9e3, 13e3), ["9k", "10k", "11k", "12k", "13k"]),
        (Scale(10**15, 10**15 + 50), ["+10", "+20", "+30", "+40", "+50"]),
        (Scale(0, 2), ["0", "1", "2"]),
        (Scale(1e-4, 1.0, is_log=True), ["1e-4", "1e-3", "0.01", "0.1", "1"]),
        (Scale(3.0, 90.0, is_log=True), ["5", "10", "20", "50"]),
        (Scale(-1e308, 1e308), []),
        (Scale(1.0, 1.0), []),
    ],
)
def test_ticks_are_round_values_within(scale, texts):
    ticks = sorted(scale.ticks(5), key=lambda tick: tick.part)
    assert [tick.text for tick in ticks] == texts
    assert all(0 <= tick.part <= 1 for tick in ticks)


def test_labels_of_close_values_tell_them_apart():
    low, high = Scale(1000.0, 1000.00005).ends()
    assert (low.text, high.text) == ("1000", "+5e-5")
    low, high = Scale(1000.0, 1000.5).ends()
    assert (low.text, high.text) == ("1000", "1000.5")


# ── size and truth of lines ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", ["loss", "noise", "smooth"])
def test_a_picture_of_four_ranks_is_small(shape):
    draw = random.Random(1)
    functions = {
        "loss": lambda i: math.exp(-i / 90) + draw.gauss(0, 0.2),
        "noise": lambda i: draw.random(),
        "smooth": lambda i: math.exp(-i / 90),
    }
    by_rank = {rank: series(*map(functions[shape], range(400))) for rank in range(4)}
    assert len(read(curve("loss", by_rank)).source) <= 8192


def test_what_is_left_out_of_a_line_is_a_hair_from_it():
    draw = random.Random(2)
    xs = [i * 1.7 for i in range(400)]
    for ys in ([40 * math.sin(x / 50) for x in xs], [draw.gauss(0, 2) for _ in xs], [5.0] * 400):
        kept = straightened(xs, ys)
        assert kept[0] == (xs[0], ys[0])
        assert kept[-1] == (xs[-1], ys[-1])
        for x, y in zip(xs, ys, strict=True):
            after = next(i for i, point in enumerate(kept) if point[0] >= x)
            (ax, ay), (bx, by) = kept[max(0, after - 1)], kept[after]
            there = by if bx == ax else ay + (by - ay) * (x - ax) / (bx - ax)
            assert abs(there - y) <= 0.6 + 1e-9
    assert len(straightened(xs, [3 * x for x in xs])) == 2


def test_a_spike_in_noise_is_kept():
    draw = random.Random(3)
    values = [draw.random() for _ in range(400)]
    values[200] = 50.0
    (line,) = read(curve("x", {0: series(*values)})).lines(MEAN)
    ys = [y for _, y in path_places(line["d"])]
    assert max(ys) - min(ys) > 150


def test_titles_say_the_newest_values_and_small_ones_get_a_log_scale():
    loss = {0: series(1.0, 0.213), 1: series(1.0, 0.284)}
    rate = {0: series(1e-3, 1e-5)}
    assert title("loss", loss) == "loss · mean 0.248 (0.213 – 0.284)"
    assert title("lr", rate) == "lr · 1e-5"
    assert title("none", {}) == "none · no value yet"
    assert [suits_log(each) for each in (loss, rate, {})] == [False, True, False]


# ── anything at all ─────────────────────────────────────────────────────────────────────


def test_any_series_are_a_valid_picture_with_all_of_it_inside():
    pytest.importorskip("hypothesis", reason="tries what nobody thought of")
    from hypothesis import given, settings
    from hypothesis import strategies as st

    steps = st.one_of(
        st.integers(-3, 30), st.integers(-(2**63), 2**63 - 1), st.integers(10**15, 10**15 + 40)
    )
    values = st.one_of(
        st.floats(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from([0.0, 1.0, 1e300, -1e300, 1.7e308, 5e-324, 1e-310, 1.0 + 2**-52]),
        st.floats(0.001, 1000),
    )

    @st.composite
    def metrics(draw):
        told = st.lists(st.tuples(steps, values), max_size=30).map(lambda p: extended(Series(), p))
        known = st.lists(
            st.tuples(steps, values), max_size=12, unique_by=lambda point: point[0]
        ).map(
            lambda points: Series(
                1,
                tuple(step for step, _ in sorted(points)),
                tuple(value for _, value in sorted(points)),
                (1,) * len(points),
            )
        )
        strided = st.tuples(st.integers(1, 40), st.lists(values, min_size=1, max_size=12)).map(
            lambda made: Series(
                2 ** (made[0] % 7),
                tuple((made[0] + i) * 2 ** (made[0] % 7) for i in range(len(made[1]))),
                tuple(made[1]),
                (3,) * len(made[1]),
                made[0] % 3,
            )
        )
        ranks = st.one_of(st.integers(0, 9), st.integers(0, 5000))
        return draw(st.dictionaries(ranks, st.one_of(told, known, strided), max_size=14))

    @settings(max_examples=60, deadline=None)
    @given(
        st.text(max_size=12), metrics(), st.booleans(), st.integers(-1, 900), st.integers(-1, 400)
    )
    def holds(name, by_rank, is_log, width, height):
        seen = read(curve(name, by_rank, is_log=is_log, width=width, height=height))
        assert_inside(seen)
        drawn = [rank for rank, each in by_rank.items() if any(map(math.isfinite, each.means))]
        assert bool(drawn) == any("cx" in shape for shape in seen.shapes)
        assert isinstance(suits_log(by_rank), bool)
        assert title(name, by_rank)

    holds()


# ── colours ─────────────────────────────────────────────────────────────────────────────

# How dichromats see linear RGB: Machado, Oliveira and Fernandes (2009), severity 1.
SIGHTS = {
    "trichromat": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanope": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranope": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanope": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def linear(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]


def luminance(colour):
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def contrast(colour, other):
    light, dark = sorted((luminance(colour), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def lab(colour, sight):
    rgb = linear(colour)
    seen = [
        min(1, max(0, sum(a * b for a, b in zip(row, rgb, strict=True)))) for row in SIGHTS[sight]
    ]
    rows = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    xyz = [sum(a * b for a, b in zip(row, seen, strict=True)) for row in rows]
    x, y, z = (
        t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116
        for t in (xyz[0] / 0.9505, xyz[1], xyz[2] / 1.089)
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("page", ["#ffffff", "#111111"])
def test_lines_and_text_stand_out_on_light_and_dark_pages(page):
    for colour in (*COLOURS, MEAN):
        assert contrast(colour, page) >= 3, colour
    # The mean's colour is that of its newest value, too.
    for colour in (TEXT, MEAN):
        assert contrast(colour, page) >= 4, colour


@pytest.mark.parametrize("sight", SIGHTS)
def test_ranks_are_told_apart_by_eyes_of_any_kind(sight):
    looks = list(zip(COLOURS, DASHES, strict=True))
    assert len(looks) == MOST_LINES
    for (colour, dashes), (other, other_dashes) in itertools.combinations(looks, 2):
        if dashes == other_dashes:
            # 10 is what is seen at a glance.
            assert math.dist(lab(colour, sight), lab(other, sight)) >= 25, (colour, other)
    for colour in COLOURS[:4]:
        assert math.dist(lab(colour, sight), lab(MEAN, sight)) >= 10, colour
