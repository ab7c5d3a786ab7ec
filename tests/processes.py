"""A Python in a process of its own, which finds the modules that these tests find. env: variables beside its own."""

import os
import subprocess
import sys

from tests.patience import NEVER_S


def begun(*words, env=(), **options):
    """Start it. Its output, errors among it, is read."""
    usual = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": _variables(env)}
    return subprocess.Popen([sys.executable, *words], **{**usual, **options})


def ran(*words, env=(), **options):
    """Run it to its end."""
    usual = {"capture_output": True, "text": True, "check": False, "timeout": NEVER_S, "env": _variables(env)}
    return subprocess.run([sys.executable, *words], **{**usual, **options})


def _variables(more):
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **dict(more)}
