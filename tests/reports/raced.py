"""Records of simulated cases that were checked for races. Their findings are invented: no kernel was run."""

from dataclasses import replace

from cases.finding import Access, Finding, verdict_of
from cases.record.record import FabricInfo, Status
from tests.reports.synthetic import KIB, record

STORE = Access(0, 1, 32, 40, "push.py:12", "st.global.u32 [%rd1], %r2;", "data", 7, "generic", 1)
LOAD = Access(1, 0, 5, 55, "push.py:20", "ld.global.u32 %r3, [%rd4];", "data", 7, "generic", 2)


def finding(severity="race", missing="a release", **changes):
    """A finding between STORE and LOAD; changes are its fields."""
    return Finding(**({"severity": severity, "missing": missing, "first": STORE, "second": LOAD} | changes))


def checked(*findings, algorithm="one_shot", size_bytes=KIB, **changes):
    """A simulated record that was checked for races, and found these."""
    made = record(algorithm, size_bytes, is_timed=False)
    reasons = verdict_of(findings)
    fields = {
        "fabric": FabricInfo("simulator", "sm_90a", made.case.world_size, 1 << 28, True, "", True, "PTX interpreter"),
        "findings": findings,
        "status": Status.WRONG if reasons else Status.PASSED,
        "reason": "; ".join(reasons),
    }
    return replace(made, **(fields | changes))


def unchecked(**changes):
    """A simulated record that was not checked for races."""
    return replace(checked(**changes), findings=None)
