"""Findings as a race checker gives them, for worlds of tests that check nothing."""

from cases.finding import Access, Finding

STORE = Access(0, 1, 32, 40, "push.py:12", "st.global.u32 [%rd1], %r2;", "data", 7, "generic", 1)
LOAD = Access(1, 0, 5, 55, "push.py:20", "ld.global.u32 %r3, [%rd4];", "data", 7, "generic", 2)


def finding(severity="race", missing="a release", **changes):
    """A finding between STORE and LOAD; changes are its fields."""
    return Finding(**({"severity": severity, "missing": missing, "first": STORE, "second": LOAD} | changes))
