"""The HTML report: what must be in it for each kind of records, what must never be in it, and its figures read back."""

import base64
import dataclasses
import hashlib
import html
import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser

import pytest

from cases.documents import encoded
from cases.record.record import Check, FabricInfo, KernelInfo, Mismatch, Status
from reports.html import page
from reports.table.sheet import Line, Sheet
from tests.golden import same_text
from tests.reports.synthetic import KIB, MIB, of_case, record, refused, study, with_environment, with_request

SIZES = (KIB, 64 * KIB, 4 * MIB)
MEASURED = study(("one_shot", "two_shot", "nccl"), SIZES, worlds=2)
EVIL = "<script>alert(1)</script>"
DTYPES = ("bfloat16", "float16", "float32")


def figures_of(text):
    """The figures embedded in a page."""
    (found,) = re.findall(r'<script type="application/json" id="figures">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


def simulated(algorithm="one_shot", size_bytes=KIB, world_size=4, **changes):
    """A simulated case with an error of 3 ulps at most, and counted instructions."""
    made = record(algorithm, size_bytes, world_size=world_size, is_timed=False)
    fabric = FabricInfo("simulator", "sm_90a", world_size, 1 << 28, True, "", True, "PTX interpreter")
    check = Check("bitwise", 4096, 0, 0.5, 3, 0.25, True, 2, True, max_relative_error=0.01, rms_relative_error=0.002)
    fields = {"fabric": fabric, "check": check, "counters": {"instructions": 1_234_567}}
    kept = ("id", "case", "started", "ended", "duration_s", "request", "environment")
    fields |= {name: getattr(made, name) for name in kept} | {"status": Status.PASSED}
    return of_case(**(fields | changes))


def failed(status=Status.DEADLOCK, reason="every thread waits", **changes):
    return record(is_timed=False, status=status, check=None, reason=reason, **changes)


def wrong():
    mismatch = Mismatch(2, 1, 77, 1.0, 2.0, "0x3f80", "0x4000")
    return record(
        is_timed=False,
        status=Status.WRONG,
        check=Check("bitwise", 9, 3, 1.0, 9, 1.0, True, 2, True, first_mismatch=mismatch),
    )


SIMULATED = [simulated(name, size) for name in ("one_shot", "two_shot") for size in SIZES]


class Reader(HTMLParser):
    """A page as text: chapters by id, rows of cells, and pictures by label; all ids, addresses and raw values."""

    def __init__(self, text):
        super().__init__()
        self.chapters = {"": ""}
        self.ids = []
        self.addresses = []
        self.scripts = 0
        self.values = []
        self._chapter = ""
        self._skipped = 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = {name: value or "" for name, value in attributes}
        self.ids += [found["id"]] if "id" in found else []
        self.addresses += [found[name] for name in ("src", "href", "xlink:href", "action", "srcset") if name in found]
        self.scripts += tag == "script"
        if tag == "section":
            self._chapter = found["id"]
            self.chapters[self._chapter] = ""
        elif tag in ("td", "th"):
            self.values.append(found.get("data-v", ""))
            self.handle_data(" | ")
        elif tag == "svg" and found.get("role") == "img":
            self.handle_data(f"\n<picture: {found['aria-label']}>\n")
        elif tag in ("tr", "caption", "p", "div", "h1", "h2", "h3", "figure", "nav", "dt", "summary", "li", "pre"):
            self.handle_data("\n")
        self._skipped += tag in ("script", "style", "svg")

    def handle_endtag(self, tag):
        self._skipped -= tag in ("script", "style", "svg")
        if tag == "section":
            self._chapter = ""

    def handle_data(self, data):
        if not self._skipped:
            self.chapters[self._chapter] += data

    def said(self, *chapters):
        """Chapters in the order of the page, "first" for what is outside of all, without blank lines."""
        wanted = {"" if name == "first" else name for name in chapters}
        lines = [
            line
            for name, text in self.chapters.items()
            if name in wanted
            for line in (f"== {name or 'first'}", *text.splitlines())
        ]
        return "\n".join(" ".join(line.split()) for line in lines if line.strip(" |"))


EXACT = {**dict.fromkeys(("max_absolute_error", "max_relative_error", "rms_relative_error"), 0.0), "max_ulp_error": 0}
EXACT |= {"rms_ulp_error": 0.0, "bound_used": 0.0}


def in_jobs(dtypes, worlds=1):
    """Records of requests of a job for each dtype."""
    records = []
    for world in range(worlds):
        for job, dtype in enumerate(dtypes):
            made = record(dtype=dtype, world=world)
            configuration = made.request.configuration | {"dtype": dtype, "records": f"folder{world}"}
            line = ("python", "-m", "runner", "a b")
            records.append(with_request(made, configuration=configuration, job=job, command_line=line))
    return records


def of_request(records, name):
    return [with_request(one, command=name) for one in records]


def without_multicast(one):
    return dataclasses.replace(one, fabric=dataclasses.replace(one.fabric, multicast=False, multicast_reason="off"))


OTHER_PLACE = {
    "gpus": [{"model": "Invented GPU"}],
    "git": {"commit": "fedcba9876543210", "dirty": True},
    "capture_s": 3.0,
}


@dataclass(frozen=True)
class OfAudit:
    verdict: str = f"FINDING: {EVIL}"
    captions: tuple[str, ...] = (EVIL,)
    sheets: tuple[Sheet, ...] = (Sheet(EVIL, (EVIL,), ((Line({EVIL: EVIL}),),)),)


PAGES = {
    "measured": (MEASURED, "first asked ran measured reasons digests"),
    "simulated": (SIMULATED, "first measured simulated"),
    "both": ([*MEASURED, *SIMULATED], "first"),
    "failed": (
        [record(), failed(), failed(Status.TIMEOUT, "no more steps"), wrong(), refused(size_bytes=MIB)],
        "first reasons",
    ),
    "unchecked": ([record(is_timed=False, check=None, reason="check was off")], "first"),
    "refused": ([refused()], "first"),
    "refused for sizes": (
        [record()] + [refused("ll", size, reason=f"up to 262144 bytes, not {size}") for size in (MIB, 4 * MIB)],
        "reasons",
    ),
    "refused alike": (
        [simulated()]
        + [
            refused(name, size, reason=f"all_reduce/{name} needs multicast, and there is none")
            for name in ("lamport", "ll", "two_shot")
            for size in SIZES
        ],
        "first reasons untimed",
    ),
    "refused otherwise": (
        [record(), refused("ll", reason="too large"), refused("ll", reason="no multicast")],
        "reasons",
    ),
    "exact": ([dataclasses.replace(one, check=dataclasses.replace(one.check, **EXACT)) for one in SIMULATED], "first"),
    "two folders": ([*SIMULATED, *of_request(SIMULATED, "again")], "simulated"),
    "jobs in worlds": (in_jobs(DTYPES[:2], worlds=2), "asked"),
    "a job": (in_jobs(DTYPES[:1]), "asked"),
    "jobs": (in_jobs(DTYPES), "asked"),
    "two places": ([*MEASURED, record(world=5, environment=OTHER_PLACE)], "environment"),
    "libraries with less": (
        [
            with_environment(one, variables={"allowed": {"NCCL_NVLS_ENABLE": "0"}})
            for one in study(("one_shot", "nccl"), (KIB,), worlds=1)
        ],
        "first",
    ),
    "no multicast": ([without_multicast(one) for one in study(("one_shot", "nccl"), (KIB,), worlds=1)], "first"),
    "no library": ([record()], "first"),
    "no fabric": ([record(), failed(fabric=None)], "ran"),
}
"""Records, and the chapters of their page that are compared."""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says(name):
    records, chapters = PAGES[name]
    same_text(Reader(page(records)).said(*chapters.split()))


def test_measured_tables_do_not_depend_on_simulated_records():
    assert Reader(page([*MEASURED, *SIMULATED])).chapters["measured"] == Reader(page(MEASURED)).chapters["measured"]


def test_a_page_of_an_audit_and_of_more_pictures_than_people_look_at():
    sheet = Sheet("the twenty", ("item", "verdict"), ((Line({"item": "1", "verdict": "verified"}),),))
    audit = OfAudit("19 verified, 1 not captured", ("by the rules",), (sheet,))
    many = [one for dtype in DTYPES[:2] for one in study(("one_shot",), SIZES, worlds=1, dtype=dtype)]
    same_text(Reader(page(many, most_pictures=3, audit=audit)).said("first", "audit", "measured"))


def test_cells_have_raw_values():
    raw = {float(value) for value in Reader(page(MEASURED)).values if value}
    assert {one["median_us"] for one in figures_of(page(MEASURED))} - {None} <= raw


def test_every_table_has_a_name_and_scopes():
    text = page([*MEASURED, *SIMULATED, wrong(), refused()])
    tables = text.split("<table")[1:]
    assert len(tables) > 5
    for one in tables:
        name = re.search(r"<caption[^>]*>([^<]+)</caption>", one)
        assert name[1].strip()
        body = one.partition("</table>")[0]
        assert body.count('scope="row"') == body.count("<tr") - 1
        assert len(re.findall("<th[ >]", body)) == body.count("scope=")


def test_the_policy_allows_this_style_and_this_script_alone():
    text = page(MEASURED)
    found = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', text)
    policy = dict(one.split(" ", 1) for one in html.unescape(found[1]).split("; "))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    for name, tag in (("script-src", "script"), ("style-src", "style")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert policy[name] == f"'sha256-{digest}'"
    assert not re.search(r"<[^>]+\son[a-z]+=", text), "no script in an attribute"


def planted():
    """Records with a script in every text that they have."""
    kernel = KernelInfo(f"all_reduce/{EVIL}", EVIL, "sm_90a", f"sha256:{EVIL}", EVIL, EVIL, EVIL, 1, 1, (EVIL,))
    base = record(EVIL)
    fabric = FabricInfo("nvshmem", "sm_90a", 4, 1, False, EVIL, False, EVIL, {EVIL: EVIL})
    environment = {"host": {EVIL: [EVIL]}, "gpus": [{"model": EVIL}], "git": {"commit": EVIL}}
    configuration = {EVIL: EVIL, "nested": {EVIL: [EVIL, {EVIL: EVIL}]}}
    request = {"command": EVIL, "command_line": [EVIL], "experiment": EVIL, "overrides": [EVIL]}
    request |= {"resolved": {EVIL: EVIL}, "configuration": configuration}
    changes = {"environment": environment, "request": request, "fabric": fabric}
    case = encoded(base.case) | dict.fromkeys(("op", "dtype", "inputs", "reduction"), EVIL)
    return [
        record(EVIL, size, **changes | {"kernel": kernel, "timing": {"devices": [{"before": {"uuid": EVIL}}] * 4}})
        for size in SIZES
    ] + [
        record("nccl", **changes | {"library": EVIL, "environment": {}}),
        refused(EVIL, reason=EVIL, **changes),
        failed(reason=f"{EVIL} said the device", **changes),
        failed(case=case | {"dtype": "float32"}, **changes | {"request": request | {"job": 7}}),
        simulated(environment=environment, request=request),
    ]


def test_every_value_is_escaped():
    text = page(planted(), title=EVIL, audit=OfAudit())
    assert EVIL not in text
    assert text.count("&lt;script&gt;alert(1)") > 50
    read = Reader(text)
    assert read.scripts == 2  # the figures, and what sorts
    assert any(one["algorithm"] == EVIL for one in figures_of(text))
    assert not re.search(r"<[^>]*\bon\w+=", text.partition("<script>")[0])


@pytest.mark.parametrize("records", [MEASURED, SIMULATED, planted()], ids=["measured", "simulated", "planted"])
def test_nothing_from_elsewhere_is_needed_and_every_id_is_there_once(records):
    text = page(records)
    read = Reader(text)
    assert len(read.ids) == len(set(read.ids))
    assert all(address.startswith("#") for address in read.addresses)
    assert {address.removeprefix("#") for address in read.addresses} <= set(read.ids)
    assert not re.search(r"url\((?!#)|@import|localStorage", text)
    referred = set(re.findall(r"url\(#([^)]+)\)", text))
    assert referred <= set(read.ids)


def test_no_records_are_no_report():
    with pytest.raises(ValueError, match="at least one record"):
        page([])
