"""Tests of the core that need a room beside it: they are skipped where the room is taken away (symlab/rooms.py)."""

import pytest

from symlab.rooms import is_here


def needs(room):
    """Return the mark of a test that needs symlab/<room>."""
    return pytest.mark.skipif(not is_here(room), reason=f"symlab/{room} is not installed")
