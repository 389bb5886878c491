"""`pulumi-lium`: the entry point, which a plain installation has too."""

from __future__ import annotations

import json
import sys

from .interruption import install


def main() -> None:
    """Run the command line. Without the `cli` extra it says how to get it."""
    if sys.argv[1:2] == ["teardown"]:
        # A signal may come at once, and must not end it before anything was deleted.
        install()
    try:
        from .commands import group
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        message, hint = "The commands need more packages.", "pip install 'pulumi-lium[cli]'"
        if "--json" in sys.argv:
            print(json.dumps({"error": {"code": "no_cli", "message": message, "hint": hint, "exit_code": 1}}))
        sys.exit(f"pulumi-lium: {message} {hint}")
    group(prog_name="pulumi-lium")


if __name__ == "__main__":
    main()
