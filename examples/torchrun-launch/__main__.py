"""From outputs to a job: `up` writes one launch script per node.

    pulumi up
    for script in launch/rank-*.sh; do $script 29500 train.py --epochs 3 & done; wait

Every rank gets the same port, and each run a fresh one.
"""

from pathlib import Path

import pulumi

import pulumi_lium as lium

FOLDER = Path("launch")
SCRIPT = """#!/usr/bin/env bash
# Rank {rank} of {nodes}, {gpus} GPUs: {script} PORT PROGRAM [ARGUMENT...]
set -euo pipefail
port=${{1:?a port that no other run uses}}
: "${{2:?a program on the node}}"
shift
exec {ssh_command} -o StrictHostKeyChecking=accept-new "torchrun {arguments} --master_port ${{port@Q}} ${{*@Q}}"
"""

cluster = lium.LiumCluster(
    "train",
    nodes=pulumi.Config().get_int("nodes") or 2,
    gpu_type="H100",
    ssh_public_keys=[Path("key.pub").read_text()],  # cp ~/.ssh/id_ed25519.pub key.pub
    ttl="8h",
)


def write_scripts(outputs: dict) -> list[str]:
    """One script for each node. Runs when the nodes do: in a preview of a new cluster nothing is known to write."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("rank-*.sh"):
        old.unlink()
    written = []
    for node, arguments in zip(outputs["nodes"], outputs["torchrun_args"], strict=True):
        path = FOLDER / f"rank-{node['rank']:.0f}.sh"
        path.write_text(
            SCRIPT.format(
                rank=f"{node['rank']:.0f}",
                nodes=len(outputs["nodes"]),
                gpus=f"{node['gpus']:.0f} {node['gpu_type']}",
                script=path.name,
                ssh_command=node["ssh_command"],
                arguments=arguments,
            )
        )
        path.chmod(0o755)
        written.append(str(path))
    return written


outputs = pulumi.Output.all(nodes=cluster.nodes_info, torchrun_args=cluster.torchrun_args)
pulumi.export("scripts", outputs.apply(write_scripts))
