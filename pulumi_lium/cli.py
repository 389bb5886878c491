"""`pulumi-lium`: the entry point, which a plain installation has too."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Without the `cli` extra it says how to get it."""
    try:
        from .commands import group
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit("pulumi-lium: the commands need more packages: pip install 'pulumi-lium[cli]'")
    group(prog_name="pulumi-lium")


if __name__ == "__main__":
    main()
