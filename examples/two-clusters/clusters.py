"""Two clusters that never take each other's machines."""

from pathlib import Path

import pulumi

import pulumi_lium as lium

keys = [Path("key.pub").read_text()]  # cp ~/.ssh/id_ed25519.pub key.pub

training = lium.LiumCluster("training", nodes=2, gpu_type="H100", ssh_public_keys=keys, ttl="1d")

evaluation = lium.LiumCluster(
    "evaluation",
    nodes=2,
    gpu_type="H100",
    ssh_public_keys=keys,
    ttl="2h",
    on_start_failure="keep",  # a node that fails is kept for a look, and bills until `pulumi destroy`
    opts=pulumi.ResourceOptions(protect=False),  # set it for a cluster that must outlive a slip of the hand
)
