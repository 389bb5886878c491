"""A training cluster beside the rest of the infrastructure: the cheapest two H100 machines that share a fabric."""

from pathlib import Path

import pulumi

import pulumi_lium as lium

config = pulumi.Config()
key_file = Path(config.get("sshPublicKey") or "~/.ssh/id_ed25519.pub").expanduser()

cluster = lium.LiumCluster(
    "train",
    nodes=config.get_int("nodes") or 2,
    gpu_type="H100",
    ssh_public_keys=[key_file.read_text()],
    max_price_per_hour=80.0,  # USD for the whole cluster
    ttl="8h",  # the service ends it then, whatever becomes of this program
)

pulumi.export("cluster_id", cluster.cluster_id)
pulumi.export("fabric", cluster.fabric_id)
pulumi.export("price_per_hour", cluster.price_per_hour)
pulumi.export("nodes", cluster.nodes_info)
pulumi.export("master", cluster.master_addr)
pulumi.export("hostfile", cluster.hostfile)
