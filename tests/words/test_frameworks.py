"""The words for frameworks: what they mean, what they bring with them, in which order."""

import pytest

from skyward_nb.words.errors import OptionError
from skyward_nb.words.frameworks import (
    WORDS,
    lacking,
    made_again,
    parse_frameworks,
    with_what_they_need,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("torch", ("torch",)),
        ("none", ()),
        ("PyTorch", ("torch",)),
        ("keras:jax", ("keras:jax",)),
        ("keras:tf", ("keras:tensorflow",)),
        ("keras", ("keras",)),
        ("transformers", ("huggingface",)),
        ("torch, hf", ("torch", "huggingface")),
        ("torch,torch", ("torch",)),
        ("hf,transformers", ("huggingface",)),
    ],
)
def test_words(text, words):
    assert parse_frameworks(text) == words


@pytest.mark.parametrize("word", WORDS)
def test_every_word_means_itself(word):
    assert parse_frameworks(word) == (word,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mxnet", "framework=mxnet: choose one of torch, jax, "),
        ("", "framework=: choose one of torch"),
        ("torch,", "framework=: choose one of torch"),
        (
            "keras:mxnet",
            "framework=keras:mxnet: write keras:jax or keras:torch or keras:tensorflow",
        ),
        ("torch:jax", "framework=torch:jax: write torch"),
        ("keras:", "write keras:jax"),
        ("torch,none", "framework=torch,none: none cannot be combined"),
        ("keras:jax,keras:torch", "one Keras, not two"),
        ("mig", "slices are asked for as mig="),
    ],
)
def test_refused(text, message):
    with pytest.raises(OptionError, match=message):
        parse_frameworks(text)


def test_what_a_framework_needs_comes_first():
    assert list(with_what_they_need(("keras:jax",))) == ["jax", "keras"]
    assert with_what_they_need(("keras:jax",))["keras"] == "jax"
    assert list(with_what_they_need(("huggingface",))) == ["torch", "huggingface"]
    everything = with_what_they_need(("huggingface", "keras:tensorflow", "jax"))
    assert list(everything) == ["torch", "jax", "tensorflow", "keras", "huggingface"]
    assert with_what_they_need(()) == {}


def test_what_has_to_be_made_again_in_a_new_group():
    assert made_again(()) == ()
    assert made_again(("huggingface",)) == made_again(("torch",))
    meshes, models = made_again(("keras:jax",))
    assert meshes.startswith("meshes, functions")
    assert models == "Keras models must be made again"
    assert made_again(("keras:torch", "tensorflow")) == (
        *made_again(("torch",)),
        *made_again(("tensorflow",)),
    )


@pytest.mark.parametrize(
    ("wanted", "have", "lacks"),
    [
        ("torch", "huggingface", ()),
        ("huggingface", "torch", ("huggingface",)),
        ("keras", "keras:jax", ()),
        ("keras:torch", "keras:jax", ("keras:torch",)),
        ("torch,jax", "keras:jax", ("torch",)),
        ("none", "none", ()),
        ("none", "torch", ()),
    ],
)
def test_what_is_lacking(wanted, have, lacks):
    assert lacking(parse_frameworks(wanted), parse_frameworks(have)) == lacks
