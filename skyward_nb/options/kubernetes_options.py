"""Turns the options about Kubernetes into a part of a pool's spec. Pure."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from skyward_nb.words.errors import OptionError
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.provider_access import KubernetesAccess, is_container_image
from skyward_nb.words.spec import PoolSpec

OF_KUBERNETES = ("context", "namespace", "queue", "service_account", "image")
"""Options that are fields of `KubernetesAccess`; `image` is one where it is a container image."""


def kubernetes_options(asked: PoolOptions) -> list[str]:
    """Which of them are stated; an `image` that is a variable's name, or an `sky.Image`, is about packages."""
    stated = [option for option in OF_KUBERNETES if option in asked.stated]
    return [each for each in stated if each != "image" or container_image(asked) is not None]


def container_image(asked: PoolOptions) -> str | None:
    """The container image that `image=` asks for; None if it asks for none."""
    image = asked.image
    return image if isinstance(image, str) and is_container_image(image) else None


def kubernetes_of(base: KubernetesAccess | None, asked: PoolOptions) -> KubernetesAccess:
    """The requested use of Kubernetes, completed by `base`."""
    changes: dict[str, Any] = {
        option: getattr(asked, option) for option in kubernetes_options(asked)
    }
    return replace(asked.kubernetes or base or KubernetesAccess(), **changes)


def with_kubernetes(spec: PoolSpec, asked: PoolOptions) -> PoolSpec:
    """A spec with the requested use of Kubernetes; raises `OptionError` for options that need its provider."""
    given = kubernetes_options(asked)
    if spec.provider == "kubernetes":
        return replace(spec, kubernetes=kubernetes_of(spec.kubernetes, asked))
    if given:
        option = given[0]
        what = f"{option}= is about Kubernetes"
        if option == "image":
            what = f"image={asked.image} is a container image, and elsewhere image= is the name of a sky.Image"
        raise OptionError(option, f"{what}: it goes with provider=kubernetes")
    return replace(spec, kubernetes=None)
