"""The cluster of one CI run. The CI file makes the key and removes the cluster; `ttl` ends it where all else failed."""

from pathlib import Path

import pulumi

import pulumi_lium as lium

cluster = lium.LiumCluster(
    "ci-train",  # every pod's name begins with it: the workflow's sweep goes by `--name-prefix ci-train-`
    nodes=2,
    gpu_type="H100",
    max_price_per_hour=80.0,  # USD for the whole cluster
    ssh_public_keys=[Path("key.pub").read_text()],
    ttl="3h",  # longer than the job may take, and no longer
)

pulumi.export("nodes", cluster.nodes_info)
pulumi.export("torchrun_args", cluster.torchrun_args)
pulumi.export("price_per_hour", cluster.price_per_hour)
pulumi.export("ordered_at", cluster.ordered_at)
