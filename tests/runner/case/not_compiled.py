"""What stands for an executable where a kernel is only bound: memory and arguments, and no launch."""

from types import SimpleNamespace

NOT_COMPILED = SimpleNamespace(host=None)
