"""A training cluster beside the rest of the infrastructure: the cheapest H100 machines that share a fabric."""

from pathlib import Path

import pulumi

import pulumi_lium as lium

cluster = lium.LiumCluster(
    "train",
    nodes=pulumi.Config().get_int("nodes") or 2,
    gpu_type="H100",
    max_price_per_hour=80.0,  # USD for the whole cluster
    ssh_public_keys=[Path("key.pub").read_text()],  # cp ~/.ssh/id_ed25519.pub key.pub
    ttl="8h",  # the service ends it then, whatever becomes of this program
)

pulumi.export("cluster_id", cluster.cluster_id)
pulumi.export("price_per_hour", cluster.price_per_hour)
pulumi.export("nodes", cluster.nodes_info)
pulumi.export("master", cluster.master_addr)
pulumi.export("hostfile", cluster.hostfile)
