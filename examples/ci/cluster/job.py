"""Runs one command on every node of the run's cluster and waits for all: `python job.py COMMAND [ARGUMENT …]`.

The first failure is the exit code, and ends the others.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

SSH_OPTIONS = ["-i", "key", "-n", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=accept-new"]


def outputs() -> dict:
    command = ["pulumi", "stack", "output", "--json", "--stack", os.environ["STACK"]]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def main(command: list[str]) -> int:
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    # `ssh_command` is the service's own line: ssh user@host -p port
    ways = [shlex.split(node["ssh_command"]) for node in outputs()["nodes"]]
    ranks = list[subprocess.Popen]()
    try:
        for way in ways:
            ranks.append(subprocess.Popen([*way, *SSH_OPTIONS, shlex.join(command)]))
        waiting = list(ranks)
        while waiting:
            for rank in list(waiting):
                try:
                    code = rank.wait(timeout=0.5)
                except subprocess.TimeoutExpired:
                    continue
                if code:
                    print(f"rank {ranks.index(rank)} ended with exit code {code}", file=sys.stderr)
                    return code
                waiting.remove(rank)
        return 0
    finally:
        for rank in ranks:
            rank.terminate()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
