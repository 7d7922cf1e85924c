"""MIG in the older dialect: `sky.Accelerator.NVIDIA.A100(mig=...)` on the pool; here simulated."""

import skyward_nb as sky

A100 = sky.Accelerator.NVIDIA.A100


@sky.compute
def slot():
    info = sky.instance_info()
    return info.worker


print(f"{A100.name} of {A100.maker}: {A100.memory} GB")
print(f"3g.40gb: {A100.mig_profiles['3g.40gb']}, 2g.20gb: {A100.mig_profiles['2g.20gb']}")
for name in ("A100-80GB", "NVIDIA.A100", "A100:4"):
    pool = sky.ComputePool(accelerator=name, simulate=True)
    print(f"{name}: {pool.spec.accelerator}, {pool.spec.world_size} ranks")

with sky.ComputePool(accelerator=A100(mig="2g.20gb"), simulate=True) as pool:
    print(f"slots: {slot() @ pool}")

try:
    sky.ComputePool(accelerator="A100:0.5")
except sky.OptionError as error:
    print(f"refused: {error}")
