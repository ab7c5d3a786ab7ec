"""The plugin of pytest: a test for each seed, failures that can be repeated, and a start that costs nothing."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import symlab
import symlab.simulating  # before pytester, which forgets the modules that its tests are the first to import
from tests.rooms import needs

pytest_plugins = ["pytester"]

ROOT = Path(symlab.__file__).resolve().parents[1]
HERE = Path(__file__).parent
PTX = "conf/exp/own/add_peers.ptx"
PLUGIN = ("-p", "symlab.pytest_plugin", "-p", "no:cacheprovider")
TICKETS = """
import torch


def test_rank_0_is_first(symlab_world):
    done = symlab_world(ranks=4).launch(
        "ticket.ptx",
        grid=1,
        block=1,
        buffers={"counter": (1, torch.int32, 0), "slots": (4, torch.int32)},
        arguments=[("peer", "counter", 0), ("peer", "slots", 0), ("u32", "rank")],
    )
    assert int(done.outputs["slots"][0][0]) == 0


def test_without_a_world():
    pass
"""


def example():
    page = (ROOT / "symlab/README.md").read_text()
    (code,) = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return str(code)


def test_the_readmes_example_is_whole_and_passes(pytester):
    code = example()
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    pytester.makepyfile(test_sum=code)
    (pytester.path / "conf").symlink_to(ROOT / "conf")  # as in the checkout
    pytester.runpytest(*PLUGIN).assert_outcomes(passed=1)
    found = pytester.runpytest(*PLUGIN, "--symlab-seeds", "3", "-v")
    found.assert_outcomes(passed=3)
    found.stdout.fnmatch_lines(["*::test_every_rank_gets_the_sum?seed2? PASSED*"])


def test_the_readmes_example_can_fail(pytester):
    pytester.makepyfile(test_sum=example())
    text = (ROOT / PTX).read_text(encoding="utf-8")
    assert text.count("%rd1, %rd1, 8") == 1
    (pytester.path / PTX).parent.mkdir(parents=True)
    (pytester.path / PTX).write_text(text.replace("%rd1, %rd1, 8", "%rd1, %rd1, 0"))
    pytester.runpytest(*PLUGIN).assert_outcomes(failed=1)


FAULT = """
import symlab

PTX = '''
.version 8.0
.target sm_90
.entry beyond(.param .u64 data) {
  .reg .b64 %d; .reg .b32 %r; ld.param.u64 %d, [data]; mov.u32 %r, 1; st.global.u32 [%d+100000000], %r; ret;
}
'''
HOW = {"grid": 1, "block": 32, "buffers": {"data": (4, "int32")}, "arguments": ["data"]}


def test_of_a_world(symlab_world):
    symlab_world(2).launch(PTX, **HOW)


def test_of_a_simulation():
    symlab.simulate(PTX, ranks=2, **HOW)
"""


def test_a_fault_is_shown_by_the_tests_line_and_the_message(pytester):
    pytester.makepyfile(test_fault=FAULT)
    found = pytester.runpytest(*PLUGIN)
    found.assert_outcomes(failed=2)
    found.stdout.fnmatch_lines(["E *WorldFailure: beyond on rank *outside every live tensor*"])
    text = found.stdout.str()
    assert "worlds.py" not in text
    assert "threads.py" not in text
    assert "direct cause" not in text
    assert len(text.splitlines()) < 50


RACES = """
import pytest
import symlab

HEAD = ".version 8.0\\n.target sm_90\\n.entry note(.param .u64 first, .param .u64 own, .param .u32 rank) {"
BODY = " .reg .b64 %d; .reg .b32 %r; ld.param.u64 %d, [WHERE]; ld.param.u32 %r, [rank]; st.global.u32 [%d], %r; ret; }"
RACE, CLEAN = (HEAD + BODY.replace("WHERE", name) for name in ("first", "own"))
HOW = dict(
    grid=1, block=1, buffers={"out": (1, "int32", 0)}, arguments=[("peer", "out", 0), "out", ("u32", "rank")]
)


def test_a_race_of_an_earlier_run(symlab_world):
    world = symlab_world(2)
    for ptx in (RACE, RACE, CLEAN):
        world.launch(ptx, **HOW)
    assert not world.findings()


def test_a_race_beside_a_failure(symlab_world):
    symlab_world(2).launch(RACE, **HOW)
    assert symlab_world(2).launch(CLEAN, **HOW).findings != ()


@pytest.mark.xfail(strict=True)
def test_a_race_that_is_expected(symlab_world):
    symlab_world(2).launch(RACE, **HOW)


@pytest.fixture
def late(symlab_world):
    yield
    symlab_world(2).launch(RACE, **HOW)


def test_a_race_of_another_fixture(late):
    pass


def test_no_race(symlab_world):
    assert symlab_world(2).launch(CLEAN, **HOW).findings == ()


def test_a_race_under_weak_memory(symlab_world):
    assert symlab_world(2, memory="weak").launch(RACE, **HOW)


def test_a_simulation_raises_nothing():
    done = symlab.simulate(RACE, ranks=2, seeds=2, races=True, **HOW)
    assert [one.severity for one in done.findings if one.fails] == ["race"]


def test_a_simulation_that_is_asked():
    done = symlab.simulate(RACE, ranks=2, seeds=2, races=True, **HOW)
    assert not [one for one in done.findings if one.fails]


def test_a_world_that_does_not_look(symlab_world):
    assert symlab_world(2, races=False).launch(RACE, **HOW).findings is None
"""


@pytest.fixture
def races(pytester):
    pytester.makepyfile(test_races=RACES)
    return pytester


@pytest.mark.slow
def test_a_race_in_any_run_fails_the_test_once(races):
    found = races.runpytest(*PLUGIN)
    found.assert_outcomes(failed=4, xfailed=1, passed=4, errors=1)
    found.stdout.fnmatch_lines(
        ["*ERROR at teardown of test_a_race_of_another_fixture*", "race: a barrier is missing *"]
    )
    said = [line for line in found.outlines if line.startswith("race: a barrier is missing between `st.global.u32 ")]
    assert len(said) == 4, "the three whose worlds have it, and the one at teardown; a simulation fails no test"
    assert all(
        "of byte 0 of out by rank 0, block 0, thread 0" in line and "by rank 1, block 0" in line for line in said
    )
    found.stdout.fnmatch_lines(["*AssertionError*", "*- symlab races -*", "race: a barrier is missing *"])
    text = found.stdout.str()
    assert "worlds.py" not in text
    assert "pytest_plugin.py" not in text


@needs("checks")
def test_random_orders_find_it_too(races):
    found = races.runpytest(*PLUGIN, "--symlab-seeds", "3", "-k", "earlier_run or no_race")
    found.assert_outcomes(failed=3, passed=3)
    found.stdout.fnmatch_lines(["*repeat it with: pytest *earlier_run* --symlab-seed 0"])


@pytest.mark.slow
@pytest.mark.parametrize("how", ["option", "ini"])
def test_races_may_be_turned_off(how, races):
    if how == "ini":
        races.makeini("[pytest]\nsymlab_races = false\n")
    found = races.runpytest(*PLUGIN, *["--symlab-no-races"] * (how == "option"))
    found.assert_outcomes(passed=6, failed=3)
    found.stdout.no_fnmatch_line("race: *")
    found.stdout.fnmatch_lines(["E *assert None == ()*", "*XPASS(strict)*"])


@pytest.mark.slow
def test_a_failure_names_the_seed_and_the_command_that_repeats_it(pytester):
    pytester.makepyfile(test_ticket=TICKETS)
    shutil.copy(HERE / "ticket.ptx", pytester.path)
    found = pytester.runpytest(*PLUGIN, "--symlab-seeds", "12")
    outcomes = found.parseoutcomes()
    assert outcomes["failed"] + outcomes["passed"] == 13
    said = re.findall(r"repeat it with: pytest '([^']+)' --symlab-seed (\d+)$", found.stdout.str(), re.MULTILINE)
    assert len(said) == outcomes["failed"] > 0
    name, seed = said[0]
    assert name == f"test_ticket.py::test_rank_0_is_first[seed{seed}]"
    pytester.runpytest(*PLUGIN, name, "--symlab-seed", seed).assert_outcomes(failed=1)
    passing = min(set(range(12)) - {int(one) for _, one in said})
    test = f"test_ticket.py::test_rank_0_is_first[seed{passing}]"
    pytester.runpytest(*PLUGIN, test, "--symlab-seed", str(passing)).assert_outcomes(passed=1)


def test_a_test_may_choose_its_order_and_open_several_worlds(pytester):
    pytester.makepyfile(
        test_worlds="""
        import pytest

        @pytest.fixture
        def opened():
            worlds = []
            yield worlds
            assert [world.healthy for world in worlds] == [False, False]

        def test_worlds(opened, symlab_world):
            opened += [symlab_world(ranks=2, schedule="random", seed=5), symlab_world(ranks=3)]
            assert [world.request.seed for world in opened] == [5, 1]
            assert [world.request.schedule for world in opened] == ["random", "random"]
            assert [len(world.run(lambda rank, given: rank.rank)) for world in opened] == [2, 3]
        """
    )
    pytester.runpytest(*PLUGIN, "--symlab-seed", "1").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--symlab-seeds", "0"], "--symlab-seeds is 0, give 1 or more"),
        (["--symlab-seed", "-1"], "--symlab-seed is -1, give 0 or more"),
        (["--symlab-seeds", "2", "--symlab-seed", "1"], "exclude each other, give one of them"),
    ],
)
def test_options_that_are_not_possible_are_refused(options, message, pytester):
    pytester.makepyfile("def test_nothing(): pass")
    found = pytester.runpytest(*PLUGIN, *options)
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines([f"*{message}*"])


def test_loading_it_imports_nothing_that_takes_time():
    code = "import pytest, sys, json; before = set(sys.modules); import symlab.pytest_plugin; "
    code += "print(json.dumps(sorted(set(sys.modules) - before)))"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    new = {name for name in json.loads(said) if name.partition(".")[0] not in sys.stdlib_module_names}
    assert new == {"symlab", "symlab.pytest_plugin", "symlab.rooms"}


def test_it_is_an_entry_point_under_the_name_that_the_suite_loads():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (name,) = project["project"]["entry-points"]["pytest11"]
    assert project["project"]["entry-points"]["pytest11"][name] == name == "symlab.pytest_plugin"
    assert ["-p", name] == project["tool"]["pytest"]["ini_options"]["addopts"][-2:]
