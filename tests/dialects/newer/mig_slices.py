"""GPUs cut into slices by MIG: a rank for each; here simulated, with as many ranks, on the CPU."""

import skyward_nb as sky


@sky.function
def place():
    info = sky.instance_info()
    return info.node, info.worker, info.workers_per_node, info.world_size


for accelerator in (
    sky.accelerators.A100(mig="3g.40gb"),
    sky.NVIDIA.H100(mig="1g.10gb"),
    sky.Accelerator.NVIDIA.A100(count=2, mig="2g.20gb"),
):
    pool = sky.Compute(accelerator=accelerator, simulate=True)
    print(f"{accelerator}: {pool.spec.world_size} ranks")

with sky.Compute(
    nodes=2, accelerator="A100", plugins=[sky.plugins.mig("3g.40gb")], simulate=True
) as pool:
    print(f"places: {place() @ pool}")

for wrong in (
    lambda: sky.accelerators.A100(mig="3g.41gb"),
    lambda: sky.Compute(plugins=[sky.plugins.mig("3g.40gb")]),
    lambda: sky.Compute(accelerator="A1O0"),
):
    try:
        wrong()
    except sky.OptionError as error:
        print(f"refused: {error}")
