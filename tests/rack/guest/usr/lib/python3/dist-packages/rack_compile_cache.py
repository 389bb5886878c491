"""Keeps what Python compiles from a ZIP file, as Ansible sends its modules: an emulated processor takes seconds for it.

Python itself keeps the compiled code of plain files only. What runs is the same code; only its file name may be that of
an earlier ZIP file.
"""

import _imp
import marshal
import os
import zipimport

FOLDER = "/var/cache/rack-python"
_KEY = 0x7261636B
_compile = zipimport._compile_source


def _cached(pathname, source):
    path = f"{FOLDER}/{_imp.source_hash(_KEY, source).hex()}"
    try:
        with open(path, "rb") as file:
            return marshal.load(file)
    except (OSError, EOFError, ValueError, TypeError):
        code = _compile(pathname, source)
    try:
        os.makedirs(FOLDER, exist_ok=True)
        with open(f"{path}.{os.getpid()}", "wb") as file:
            marshal.dump(code, file)
        os.replace(file.name, path)
    except OSError:
        pass  # a read-only or full disk: compiled again the next time
    return code


zipimport._compile_source = _cached
