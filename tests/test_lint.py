"""The rules of tests/lint.py find what they are for, and the files that they are about."""

from pathlib import Path

import pytest

from tests import lint

WRONG = """
assert time.monotonic() - began < 3
assert time.monotonic() < ends_s
took = time.monotonic() - began
assert outcome.wall_s < 3
assert 0.5 <= done.seconds < 30
program = "time.perf_counter()"
subprocess.run(line, timeout=20)
process.wait(5)
thread.join(59.5)
world.run(squared, None, 7)
world.run(program, None, deadline_s=20)
ProcessWorld(2, opener, start_deadline_s=20.0)
main(["run", "deadline_s=0.5"])
threading.Timer(0.5, os.kill, (pid, 2)).start()
""".splitlines()[1:]
RIGHT = """
assert time.monotonic() - began >= 0.2
assert before_s <= after_s
assert outcome.wall_s < PATIENCE_S
process.wait(PATIENCE_S)
ready.wait(0.02)
process.communicate(timeout=120)
world.run(program, None, NEVER_S)
main(["run", "deadline_s=0", "deadline_s=600", "deadline_s=1e2"])
""".splitlines()[1:]


@pytest.mark.parametrize(("line", "count"), [*((one, 1) for one in WRONG), *((one, 0) for one in RIGHT)])
def test_what_a_busy_machine_would_refuse_is_found(line, count):
    assert [number for number, _ in lint.speed(f"x = 1\n{line}\n")] == [2] * count
    for name in ("runner/x.py", "tests/patience.py", "tests/benchmarks/x.py"):
        assert not list(lint.of_source(lint.ROOT / name, line))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("time.sleep(3)\nprocess.send_signal(signal.SIGINT)", [1]),
        ("    sleep(0.3)\n    say()\n    if x: os.kill(pid, 2)", [1]),
        ('main(["audit", "records"])\nsaid = out()\nassert "1 case run again here" in said', [1]),
        ('main(["audit", "records", "--rerun", "all"])\nassert "1 case run again here" in out()', []),
        ("while not begun():\n    time.sleep(0.05)\nos.kill(pid, 2)", []),
    ],
)
def test_what_of_several_lines_a_busy_machine_would_refuse_is_found(text, lines):
    assert [number for number, _ in lint.speed(text)] == lines


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("None where nobody\n    counts", ["nobody"]),
        ("# a batch has so\n    # many runs", ["so many"]),
        ('"conf/ is not "\n    f"asked"', ["is not asked"]),
        ("// Whoever reads\n// is\n// told", ["whoever", "is told"]),
        ("it is asked for, for nobodys", []),
    ],
)
def test_unwanted_words_are_found_across_lines(text, words):
    assert lint.unwanted_in(text) == words


def test_all_packages_are_read():
    names = {path.relative_to(lint.ROOT).as_posix() for path in lint.written()}
    assert {name.partition("/")[0] for name in names} == {*lint.PACKAGES, "conf"}
    assert {"runner/track/send.py", "reports/html/page.js", "conf/config.yaml"} <= names


def test_a_link_needs_its_file_or_its_title():
    text = "# A title, here\n[a](#a-title-here) [b](x.md)\n[c](#no) [d](README.md)\n`cases/gone.py` `cases/ops.py`\n"
    found = [(line, what.split()[0]) for line, what in lint.dead_links(lint.ROOT / "page.md", text)]
    assert found == [(2, "x.md"), (3, "#no"), (4, "cases/gone.py")]


def test_files_of_tests_share_neither_names_nor_experiments():
    assert list(lint.same_names([Path("tests/a/x.py"), Path("tests/b/y.py"), Path("tests/b/conftest.py")])) == []
    (line,) = lint.same_names([Path("tests/a/x.py"), Path("tests/b/x.py")])
    assert line.startswith("tests/a/x.py and tests/b/x.py: ")
    one = 'run("track.experiment=x")'
    assert list(lint.shared_experiments([("a.py", one), ("b.py", one.replace("=x", "=y"))])) == []
    (line,) = lint.shared_experiments([("a.py", one), ("b.py", one)])
    assert line.startswith("a.py and b.py: ")


def test_texts_of_tests_that_are_gone_are_named():
    here = "tests/test_lint.py::test_texts_of_tests_that_are_gone_are_named"
    assert list(lint.without_test([here, f"{here}[a::b] #2"])) == []
    for gone in (f"{here}_not", "tests/test_gone.py::test_a[x]"):
        assert len(list(lint.without_test([gone]))) == 1
