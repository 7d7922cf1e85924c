"""What `simulate` puts in the place of what a GPU program asks for: packages, and words on it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from skyward_nb.words.frameworks import with_what_they_need
from skyward_nb.words.image import Image
from skyward_nb.words.masking import masked_address

if TYPE_CHECKING:
    from skyward_nb.words.spec import PoolSpec

_EXTRAS = re.compile(r"^([\w.\-]+)\s*\[([^\]]*)\]")
_CUDA = re.compile(r"cu(da|\d)")
_BUILD = re.compile(r"\+cu\d+\b")
_INDEX = re.compile(r"(?:^|\s)(?:-i|--(?:extra-)?index-url)(?:[\s=]+(\S*))?$")
_OF_CUDA = re.compile(r"/whl/(nightly/)?cu\d+/?$")


def on_cpu(image: Image) -> Image:
    """The image with the CPU packages of those that are for CUDA, and without torch's indices of CUDA builds."""
    return replace(image, pip=tuple(dict.fromkeys(_requirements(image.pip))))


def _requirements(pip: Iterable[str]) -> Iterator[str]:
    words = iter([word for text in pip for word in re.split(r"\s+(?=-)", text)])
    for word in words:
        if found := _INDEX.search(word):
            url = found[1] or next(words, "")
            if not _OF_CUDA.search(url):
                yield f"{word} {url}" if not found[1] else word
        else:
            yield _BUILD.sub("", _EXTRAS.sub(_without_cuda, word))


def _without_cuda(found: re.Match[str]) -> str:
    extras = [each.strip() for each in found[2].split(",")]
    left = [each for each in extras if "cuda" not in each]
    return f"{found[1]}[{','.join(left)}]" if left else found[1]


def simulation_notes(spec: PoolSpec, before: PoolSpec | None = None) -> tuple[str, ...]:
    """What stands in for what, in words; of a pool that was as `before`, for what is added to it."""
    if not spec.simulate:
        return ()
    had = with_what_they_need(before.framework if before else ())
    added = with_what_they_need(spec.framework).keys() - had.keys()
    notes: list[str] = []
    if "torch" in added:
        said = {"yes": "torch.cuda.is_available() says False: simulate=cuda has it say True"}
        notes.append(
            f"cuda devices are the CPU; {said.get(spec.simulate, 'torch says there are some')}"
        )
    if spec.backend == "nccl" and (before is None or before.backend != "nccl"):
        notes.append("gloo for backend=nccl")
    if "jax" in added:
        notes.append("jax.devices() are the CPU's, and jax.devices('gpu') finds none")
    if before is None:
        notes += _of_packages(spec.image)
        notes += _of_needs(spec)
    return tuple(f"simulate: {note}" for note in notes)


def _of_packages(image: Image) -> list[str]:
    there = on_cpu(image).pip
    changed = [text for text in image.pip if text not in there and _CUDA.search(text)]
    return [f"CPU packages for pip={' '.join(map(masked_address, changed))}"] if changed else []


def _of_needs(spec: PoolSpec) -> list[str]:
    """Needs of rented machines are kept for them."""
    if spec.provider == "aws":
        return []
    needs = [
        f"{name}={need}" for name, need in (("cpus", spec.cpus), ("memory", spec.memory)) if need
    ]
    return [f"{' '.join(needs)} holds for rented machines, not for these"] if needs else []
