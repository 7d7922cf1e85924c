"""Bundles cut to what may travel, and what is left out told."""

import base64
import os

import pytest

from skyward_nb.words.bundles import LONGEST_TEXT, fitting, part_size


def test_what_fits_stays():
    data = {"image/png": "abcd", "text/plain": "x", "text/html": "<b>"}
    assert fitting(data) == data
    assert fitting({}) == {}


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100])
def test_sizes_are_those_of_the_things_themselves(count):
    assert part_size("image/png", base64.b64encode(os.urandom(count)).decode()) == count
    assert part_size("text/html", "é" * count) == 2 * count
    assert part_size("image/svg+xml", "e" * count) == count


def test_a_part_that_is_too_large_goes_when_another_stays():
    data = {"image/png": "x" * 200, "image/jpeg": "x" * 20, "text/plain": "<Figure>"}
    assert fitting(data, 100) == {"image/jpeg": "x" * 20, "text/plain": "<Figure>"}


@pytest.mark.parametrize(
    ("mime", "said"),
    [
        ("image/png", "a figure of 52.4 MB (image/png) is not shown: more than 10 MB. "
         "Save it to a file there, or draw it smaller."),
        ("image/svg+xml", "a figure of 69.9 MB (image/svg+xml)"),
        ("text/html", "HTML of 69.9 MB (text/html)"),
        ("video/mp4", "a video of 52.4 MB (video/mp4)"),
        ("application/x", "something of 69.9 MB (application/x)"),
    ],
)  # fmt: skip
def test_what_is_left_out_is_told(mime, said):
    text = fitting({mime: "x" * 69_900_000})["text/plain"]
    assert text.startswith(said)
    both = fitting({mime: "x" * 69_900_000, "text/plain": "<X>"})
    assert both == {"text/plain": f"<X>\n{text}"}


def test_all_that_is_left_out_is_told():
    text = fitting({"image/png": "x" * 400, "text/html": "x" * 300}, 100)["text/plain"]
    assert [line.split(" is ")[0] for line in text.split("\n")] == [
        "a figure of 300 B (image/png)",
        "HTML of 300 B (text/html)",
    ]


def test_long_text_is_cut_and_counted():
    text = fitting({"text/plain": "é" * (LONGEST_TEXT + 1234)})["text/plain"]
    assert text == "é" * LONGEST_TEXT + "\n… 1,234 more characters"
