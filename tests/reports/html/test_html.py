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
from reports.html.answer import rivals
from reports.record.bundle import digest, merged
from reports.table import table
from reports.table.sheet import Line, Sheet
from reports.table.text import json_of
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
    """Chapters by id: their text, their tables (lists of rows), the labels of their pictures; all ids and addresses."""

    def __init__(self, text):
        super().__init__()
        self.texts = {}
        self.tables = {}
        self.pictures = {}
        self.ids = []
        self.addresses = []
        self.scripts = 0
        self.values = []
        self._section = ""
        self._cell = None
        self._skipped = 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = {name: value or "" for name, value in attributes}
        if "id" in found:
            self.ids.append(found["id"])
        self.addresses += [found[name] for name in ("src", "href", "xlink:href", "action", "srcset") if name in found]
        if tag in ("script", "style"):
            self.scripts += tag == "script"
            self._skipped += 1
        elif tag == "section":
            self._section = found["id"]
        elif tag == "table":
            self.tables.setdefault(self._section, []).append([])
        elif tag == "tr":
            self.tables[self._section][-1].append([])
        elif tag in ("td", "th"):
            self._cell = []
            self.values.append((found.get("data-v", ""), found.get("class", "")))
        elif tag == "svg" and found.get("role") == "img":
            self.pictures.setdefault(self._section, []).append(found["aria-label"])

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._skipped -= 1
        elif tag in ("td", "th") and self._cell is not None:
            self.tables[self._section][-1][-1].append("".join(self._cell).strip())
            self._cell = None
        elif tag == "section":
            self._section = ""

    def handle_data(self, data):
        if self._skipped:
            return
        self.texts[self._section] = self.texts.get(self._section, "") + data
        if self._cell is not None:
            self._cell.append(data)


def test_a_measured_set_has_every_chapter():
    read = Reader(page(MEASURED))
    assert "Every case that ran passed its check (18 cases)." in read.texts[""]
    assert "18 passed" in " ".join(read.texts[""].split())
    assert "12 refused" in " ".join(read.texts[""].split())
    assert "4 x Invented GPU" in read.texts[""]
    assert "measured on hardware: 18 cases with times" in read.texts[""]
    assert "0123456789ab" in read.texts[""]
    wanted = {"asked", "ran", "measured", "reasons", "environment", "digests"}
    assert wanted <= set(read.texts)
    assert "simulated" not in read.texts
    assert "NCCL 0.0.0" in read.texts["ran"]
    assert "peer copies in the same runs" in read.texts["measured"]
    assert "multicast" in read.texts["reasons"]
    assert digest([one for one in MEASURED if one.request.command == "command0"]) in read.texts["digests"]


def test_the_table_has_the_columns_of_nccl_tests_and_raw_values():
    """Size, algorithm and time come first: a phone shows no more."""
    read = Reader(page(MEASURED))
    timed_table = next(one for one in read.tables["measured"] if one[0][0] == "size (B)")
    columns = timed_table[0]
    wanted = ["size (B)", "algorithm", "time (us)", "count", "type", "redop", "min", "p95", "p99", "algbw (GB/s)"]
    assert columns[: len(wanted)] == wanted
    assert columns[-5:] == ["busbw (GB/s)", "#wrong", "link %", "ours/base", "worlds"]
    assert [row[0] for row in timed_table[1:]] == [str(size) for size in SIZES for _ in range(3)]
    raw = [float(value) for value, _ in read.values if value]
    for one in figures_of(page(MEASURED)):
        if one["median_us"] is not None:
            assert one["median_us"] in raw
    best = [row[columns.index("time (us)")] for row in timed_table[1:]]
    assert sum(cell.startswith("* ") for cell in best) == len(SIZES)


def test_pictures_of_a_measured_set():
    labels = Reader(page(MEASURED)).pictures["measured"]
    assert [label.partition(":")[0] for label in labels] == [
        "time against size",
        "bus bandwidth against size",
    ]


def test_simulated_and_measured_records_share_no_table_and_no_picture():
    read = Reader(page([*MEASURED, *SIMULATED]))
    assert "simulated: 6 cases without times" in read.texts[""]
    simulated_table = read.tables["simulated"][0]
    assert {"status", "wrong", "max ulp", "PTX instr (M)"} <= set(simulated_table[0])
    assert not any("(us)" in column or "GB/s" in column for column in simulated_table[0])
    assert [row[-1] for row in simulated_table[1:]] == ["1.235"] * 6
    assert all("simulated" not in label for label in read.pictures["measured"])
    apart = Reader(page([*MEASURED])).tables["measured"]
    assert read.tables["measured"] == apart


def test_a_simulated_set_has_no_times():
    read = Reader(page(SIMULATED))
    assert "measured" not in read.texts
    assert "4 x simulated GPU" in read.texts[""]
    assert read.pictures == {}
    assert "times and bandwidths do not exist" in read.texts["simulated"]
    assert not any(one["median_us"] for one in figures_of(page(SIMULATED)))


def test_what_failed_is_said_first_and_with_its_reason():
    records = [record(), failed(), failed(Status.TIMEOUT, "no more steps"), wrong(), refused(size_bytes=MIB)]
    read = Reader(page(records))
    assert "3 of 4 cases that ran did not pass." in read.texts[""]
    said = " ".join(read.texts[""].split())
    assert "1 passed" in said
    assert "1 wrong" in said
    assert "2 failed" in said
    rows = read.tables["reasons"][1][1:]
    assert {row[0] for row in rows} == {"! DEADLOCK", "! TIMEOUT", "✗ WRONG"}
    assert {row[-1] for row in rows} >= {"every thread waits", "no more steps"}
    assert any("first at rank 2, index 77" in row[-1] for row in rows)


def test_unchecked_cases_are_no_passed_ones():
    records = [record(is_timed=False, check=None, reason="check was off")]
    text = Reader(page(records)).texts[""]
    assert "the results of 1 of them were not checked" in text
    assert "0 passed" in " ".join(text.split())


def test_refusals_that_differ_in_the_size_are_one_line():
    records = [refused("lamport", size, reason=f"up to 262144 bytes, not {size}") for size in (MIB, 4 * MIB)]
    (line,) = Reader(page([record(), *records])).tables["reasons"][0][1:]
    assert line == ["all_reduce/lamport", "2", "1 MiB, 4 MiB", "up to 262144 bytes, not (its size)"]


def test_equal_refusals_are_one_line_with_their_number():
    names = ("lamport", "ll", "two_shot")
    records = [
        refused(name, size, reason=f"all_reduce/{name} needs multicast, and there is none")
        for name in names
        for size in SIZES
    ]
    read = Reader(page([simulated(), *records]))
    (line,) = read.tables["reasons"][0][1:]
    who = ", ".join(f"all_reduce/{name}" for name in names)
    assert line == [who, "9", "1 KiB, 64 KiB, 4 MiB", "(it) needs multicast, and there is none"]
    assert "REFUSED" not in read.texts.get("untimed", "")
    assert read.texts[""].count("refused") == 1, "their number is among the counts"


def test_other_reasons_are_other_lines():
    records = [refused("lamport", reason="too large"), refused("lamport", reason="needs multicast")]
    assert len(Reader(page([record(), *records])).tables["reasons"][0][1:]) == 2


@pytest.mark.slow
def test_the_first_screen_is_the_answer():
    read = Reader(page([*MEASURED, *SIMULATED]))
    above = read.tables[""][0]
    assert above[0] == ["size", "fastest", "time (us)", "busbw (GB/s)", "ours/base"]
    assert [row[0] for row in above[1:]] == ["1 KiB", "64 KiB", "4 MiB"]
    best = {str(one["size_bytes"]): one for one in figures_of(page(MEASURED)) if one["best"]}
    assert [row[1] for row in above[1:]] == [best[str(size)]["algorithm"] for size in SIZES]
    assert [label.partition(":")[0] for label in read.pictures[""]] == ["time against size"]
    text = page(MEASURED)
    places = [text.index(one) for one in ('class="asked"', 'class="verdict"', "Best of each size", "<figure", "<nav")]
    assert places == sorted(places)
    asked = "all_reduce; bfloat16; 4 ranks; 3 sizes, 1 KiB to 4 MiB; multimem_one_shot, one_shot, two_shot; beside nccl"
    assert asked in read.texts[""]


def test_without_times_and_errors_there_is_no_answer_but_the_verdict():
    read = Reader(page([refused()]))
    assert "" not in read.tables
    assert "Every case was refused (1 case): nothing ran." in read.texts[""]


def test_the_first_screen_of_a_simulated_run_says_how_cases_ended_and_that_there_is_no_bandwidth():
    exact = [dataclasses.replace(one, check=dataclasses.replace(one.check, **EXACT)) for one in SIMULATED if one.check]
    read = Reader(page(exact))
    above = read.tables[""][0]
    assert above[0] == ["algorithm", "sizes", "cases", "passed", "elements", "wrong"]
    assert sum(int(row[2]) for row in above[1:]) == len(exact) == sum(int(row[3]) for row in above[1:])
    for records in (exact, SIMULATED):
        assert "symlab publishes no bandwidth of a simulated run" in Reader(page(records)).texts[""]
    assert "publishes no bandwidth" not in Reader(page([*MEASURED, *SIMULATED])).texts[""]


def test_sections_are_not_split_by_the_folder_of_the_records():
    again = [dataclasses.replace(one, request=dataclasses.replace(one.request, command="again")) for one in SIMULATED]
    read = Reader(page([*SIMULATED, *again]))
    (table,) = read.tables["simulated"]
    assert sorted(row[table[0].index("world")] for row in table[1:]) == ["1"] * 6 + ["2"] * 6
    assert "world: 1 is again, 2 is command0" in read.texts["simulated"]


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


EXACT = {
    "max_absolute_error": 0.0,
    "max_relative_error": 0.0,
    "rms_relative_error": 0.0,
    "max_ulp_error": 0,
    "rms_ulp_error": 0.0,
    "bound_used": 0.0,
}


def planted():
    """Records with a script in every text that they have."""
    kernel = KernelInfo(f"all_reduce/{EVIL}", EVIL, "sm_90a", f"sha256:{EVIL}", EVIL, EVIL, EVIL, 1, 1, (EVIL,))
    base = record(EVIL)
    fabric = FabricInfo("nvshmem", "sm_90a", 4, 1, False, EVIL, False, EVIL, {EVIL: EVIL})
    environment = {"host": {EVIL: [EVIL]}, "gpus": [{"model": EVIL}], "git": {"commit": EVIL}}
    configuration = {EVIL: EVIL, "nested": {EVIL: [EVIL, {EVIL: EVIL}]}}
    request = {
        "command": EVIL,
        "command_line": [EVIL],
        "experiment": EVIL,
        "overrides": [EVIL],
        "resolved": {EVIL: EVIL},
    }
    request |= {"configuration": configuration}
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


@dataclass(frozen=True)
class OfAudit:
    verdict: str = f"FINDING: {EVIL}"
    captions: tuple[str, ...] = (EVIL,)
    sheets: tuple[Sheet, ...] = (Sheet(EVIL, (EVIL,), ((Line({EVIL: EVIL}),),)),)


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


def test_figures_are_those_of_the_table_as_json():
    records = [*MEASURED, *SIMULATED, failed(reason="</script><b>&amp; \u2028")]
    assert figures_of(page(records)) == json.loads(json_of(table.values(merged(records))))


def test_an_audit_stands_first():
    sheet = Sheet("the twenty", ("item", "verdict"), ((Line({"item": "1", "verdict": "verified"}),),))

    @dataclass(frozen=True)
    class Told:
        verdict: str = "19 verified, 1 not captured"
        captions: tuple[str, ...] = ("by the rules",)
        sheets: tuple[Sheet, ...] = (sheet,)

    read = Reader(page(MEASURED, audit=Told()))
    assert next(name for name in read.texts if name) == "audit"
    assert "19 verified, 1 not captured" in read.texts["audit"]
    assert read.tables["audit"][0] == [["item", "verdict"], ["1", "verified"]]


def test_worlds_of_one_request_stand_together_and_jobs_say_how_they_differ():
    records = []
    for world in range(2):
        for job, dtype in enumerate(("bfloat16", "float32")):
            made = record(dtype=dtype, world=world)
            configuration = (made.request.configuration or {}) | {"dtype": dtype, "records": f"folder{world}"}
            line = ("python", "-m", "runner", "a b")
            records.append(with_request(made, configuration=configuration, job=job, command_line=line))
    read = Reader(page(records))
    commands, jobs = read.tables["asked"]
    assert [row[0] for row in commands[1:]] == ["command0", "command1"]
    assert commands[1][-1] == "python -m runner 'a b'"
    assert jobs == [["job", "dtype"], ["1", "bfloat16"], ["2", "float32"]]
    assert "accumulator: float32" in read.texts["asked"]


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_a_configuration_says_whether_jobs_share_it_and_overrides_stand_beside_that_of_one_job(jobs):
    """Each job has overrides of its own: those of one among others would pass for all."""
    read = Reader(page([with_request(record(dtype=dtype), job=job) for job, dtype in enumerate(DTYPES[:jobs])]))
    asked = read.texts["asked"]
    assert ("all jobs share" in asked, "overrides" in asked) == (jobs > 1, jobs == 1)


def test_environments_are_shown_once_and_then_by_their_differences():
    other = {"gpus": [{"model": "Invented GPU"}], "git": {"commit": "fedcba9876543210", "dirty": True}}
    read = Reader(page([*MEASURED, record(world=5, environment=other | {"capture_s": 3.0})]))
    assert read.tables["environment"][0] == [
        ["what", "environment 1", "here"],
        ["git.commit", "0123456789abcdef", "fedcba9876543210"],
        ["git.dirty", "no", "yes"],
    ]
    named = re.findall(r"Environment [0-9]+: [0-9]+ cases?", read.texts["environment"])
    assert named == [f"Environment 1: {len(MEASURED)} cases", "Environment 2: 1 case"]


def test_clocks_are_from_the_lowest_to_the_highest_and_say_what_held_them_back():
    def devices(mhz, *held):
        reading = {"uuid": "GPU-1", "sm_mhz": mhz, "temperature_c": 40, "throttle": list(held)}
        return [{"before": reading, "after": reading | {"sm_mhz": mhz - 10}}] * 4

    records = [record(timing={"devices": devices(1980)}), record(world=1, timing={"devices": devices(1700, "idle")})]
    read = Reader(page(records))
    lines = next(one for one in read.tables["environment"] if one[0][:2] == ["rank", "GPU"])
    assert lines[1][:4] == ["0", "GPU-1", "1700 to 1980", "1690 to 1970"]
    assert lines[1][lines[0].index("held back by")] == "idle"


@pytest.mark.parametrize("value", [[], {}, ["x"], {"a": 1}, "x", 5, None])
def test_readings_of_another_kind_end_no_page(value):
    readings = dict.fromkeys(("uuid", "sm_mhz", "power_w", "throttle", "not_captured"), value)
    read = Reader(page([record(timing={"devices": [{"before": readings, "after": value}] * 4})]))
    assert any(one[0][:2] == ["rank", "GPU"] for one in read.tables["environment"])


def test_more_pictures_than_people_look_at_are_left_out_aloud():
    many = [one for dtype in ("bfloat16", "float32") for one in study(("one_shot",), SIZES, worlds=1, dtype=dtype)]
    read = Reader(page(many, most_pictures=3))
    assert (len(read.pictures[""]), len(read.pictures["measured"])) == (1, 2)
    assert "left out, from 'curves of all_reduce float32" in read.texts[""]
    assert "this page has 3 axes at most" in read.texts[""]


def test_no_records_are_no_report():
    with pytest.raises(ValueError, match="at least one record"):
        page([])


def test_the_first_screen_says_worlds_and_what_libraries_did_without():
    assert rivals(SIMULATED) == ""
    said = rivals([with_environment(one, variables={"allowed": {"NCCL_NVLS_ENABLE": "0"}}) for one in MEASURED])
    assert said.startswith("each time in 2 worlds; ")
    assert said.endswith("; libraries with NCCL_NVLS_ENABLE=0")
    assert "no multicast (NVLS)" in rivals([without_multicast(one) for one in MEASURED])
    assert "beside no library" in rivals([one for one in MEASURED if one.case.algorithm != "nccl"])
    assert said not in page(SIMULATED)
    assert "<span>measured:</span> each time in 2 worlds" in page(MEASURED)


def without_multicast(one):
    return dataclasses.replace(one, fabric=dataclasses.replace(one.fabric, multicast=False, multicast_reason="off"))
