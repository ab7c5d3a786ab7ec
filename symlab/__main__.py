"""python -m symlab: the same as symlab."""

from __future__ import annotations

from symlab.command import command, main

__all__ = ["main"]

if __name__ == "__main__":
    command()
