"""Types of machines whose GPUs MIG cuts into the slices that are asked for. Pure."""

from __future__ import annotations

from skyward_nb.words.accelerators import Accelerator
from skyward_nb.words.errors import NothingFits
from skyward_nb.words.mig import slices_per_gpu, spell_profiles
from skyward_nb.words.offers import InstanceType
from skyward_nb.words.spec import PoolSpec


def cut_alike(
    wanted: Accelerator, having: list[InstanceType], spec: PoolSpec
) -> list[InstanceType]:
    """Of these types, those whose GPUs have the slices that are asked for, and as many.

    Raises `NothingFits`, with the profiles that there are.
    """
    if spec.mig is None:
        return having
    many = slices_per_gpu(spec.mig, wanted)
    found = [each for each in having if each.mig and each.mig.profiles.get(spec.mig) == many]
    if found:
        return found
    models = {each.mig: each for each in having if each.mig}
    has = "; ".join(
        f"{each.name} has {model}, for {spell_profiles(model.profiles)}"
        for model, each in models.items()
    )
    own = spec.aws.instance_type if spec.aws else None
    whose = f"instance_type={own} has no" if own else "no type of EC2 has a"
    raise NothingFits(
        f"accelerator={wanted} mig={spec.mig}: {whose} GPU with {many} such slices. "
        f"{has or 'MIG is not known of its GPUs'}",
        nearest=tuple(each.name for each in models.values()),
    )


def cut_remarks(wanted: Accelerator, each: InstanceType, spec: PoolSpec) -> tuple[str, ...]:
    """A remark on the GPUs of a type that are cut, or none."""
    if spec.mig is None or each.mig is None:
        return ()
    many = each.mig.profiles[spec.mig]
    idle = spec.devices - spec.slots
    left = f", and {idle} of {spec.devices} idle" * (idle > 0)
    if not spec.partition:
        return (f"partition=no: the image of the machines has to cut {each.mig} into {spec.mig}",)
    return (
        f"{wanted.count} × {each.mig} of each machine is cut into {many} × {spec.mig}: a rank on each "
        f"slice{left}",
    )
