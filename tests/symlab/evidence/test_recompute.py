"""What records say was asked for is made again, and what comes out differently is named."""

import shutil
import subprocess
from pathlib import Path

import pytest

from reports.record.bundle import read
from runner.__main__ import main
from symlab.evidence import recompute
from symlab.evidence.audit.worker import Rerun
from symlab.evidence.replay import recomposed
from symlab.evidence.replay.expected_cases import Expected, cases
from symlab.evidence.replay.recomposed import configurations, jobs_of
from tests.golden import same_text
from tests.reports.synthetic import with_case, with_environment, with_request
from tests.runner.conftest import TWO, Script
from tests.symlab.evidence.audit.complete_set import asked

ROOT = Path(__file__).parents[3]


def silent(text):
    """Nobody listens."""


@pytest.fixture
def made(symlab):
    """Records of a command line on stub worlds; as if their conf/ were today's."""

    def make(*arguments):
        records = read([max((symlab(*arguments).folder / "records").iterdir(), key=lambda path: path.stat().st_mtime)])
        return [with_environment(record, sources=recomposed.source_digests(ROOT)) for record in records]

    return make


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The two records of a command with seed=3."""
    place = tmp_path_factory.mktemp("two")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert main(["sizes=[8]", "seed=3", TWO, "track=none"], Script().tools()) == 0
    records = read(list((place / "records").iterdir()))
    return [with_environment(record, sources=recomposed.source_digests(ROOT)) for record in records]


def with_configuration(record, **changes):
    return with_request(record, configuration={**record.request.configuration, **changes})


def composed_again(records):
    return configurations(jobs_of(records), silent)[1]


def is_same(records):
    found = composed_again(records)
    return (len(found.agree), found.different, found.unsure) == (1, [], [])


def test_a_configuration_is_composed_again_without_the_key_of_predictions(two):
    timing = {**two[0].request.configuration["timing"], "predict": True}
    request = two[0].request
    lines = {name: [*getattr(request, name), "timing.predict=true"] for name in ("overrides", "command_line")}
    old = [with_request(with_configuration(record, timing=timing), **lines) for record in two]
    assert is_same(old)


def test_a_configuration_is_composed_again_and_what_its_overrides_do_not_give_is_named(two):
    assert is_same(two)
    (different,) = composed_again([with_configuration(record, seed=7) for record in two]).different
    assert different == ("job 1 of " + two[0].request.command, "seed: recorded 7, composed 3")
    (different,) = composed_again([with_request(record, overrides=["no_such=1"]) for record in two]).different
    assert different[1].startswith("can't be composed any more: ")


@pytest.mark.parametrize(("there", "here", "differs"), [(False, None, False), (False, True, True), (True, None, True)])
def test_a_default_that_was_another_one_makes_no_difference(there, here, differs):
    assert bool(recomposed._differing({"check.races": there}, {"check.races": here})) is differs


@pytest.mark.slow
def test_commit_and_sources_are_compared_among_the_records_of_one_process(made):
    """A resumed command may go on from another commit, and says so; within each part there is one."""
    records = made("sizes=[8,16]", "seed=3")
    later = [with_request(with_environment(one, git={"commit": "f" * 40}), resumed=1) for one in records[2:]]
    assert is_same([*records[:2], *later])
    odd = with_environment(later[1], git={"commit": "e" * 40})
    (different,) = composed_again([*records[:2], later[0], later[0], odd]).different
    assert different[1] == f"the records of the job have not one commit or sources: {odd.id} differs"
    (different,) = composed_again([*records[:2], with_configuration(later[0], seed=4)]).different
    assert "not one request" in different[1]


def test_what_can_not_be_composed_here_is_not_comparable(two):
    (told,) = composed_again([with_request(record, replays={"commands": ["x"]}) for record in two]).unsure
    assert told[1].startswith("a replay: ")
    (told,) = composed_again([with_request(record, configuration=None) for record in two]).unsure
    assert told[1] == "the record holds no configuration"
    for commit, reason in (("f" * 40, "is unavailable here"), ("--output=/tmp/x", "does not name its commit")):
        elsewhere = [with_environment(record, sources={}, git={"commit": commit}) for record in two]
        assert len(composed_again(elsewhere).agree) == 1, "it comes out the same all the same"
        (told,) = composed_again([with_configuration(record, seed=7) for record in elsewhere]).unsure
        assert reason in told[1]
        assert told[1].endswith("seed: recorded 7, composed 3")


def test_experiments_of_another_folder_are_not_comparable(two):
    records = [with_request(record, overrides=["+exp=mine"]) for record in two]
    assert len(composed_again(records).different) == 1
    for option in (["--config-dir", "mine"], ["--config-dir=mine"], ["-cd", "mine"]):
        added = [with_request(record, command_line=["symlab", *option, "+exp=mine"]) for record in records]
        (told,) = composed_again(added).unsure
        assert told[1] == "the files of its --config-dir are not recorded"


@pytest.mark.slow
def test_the_commits_own_configurations_are_asked(made, repository):
    """A repository whose conf/ has changed since the records were made."""
    records = made("+exp=allreduce_bf16", "sizes=[8]")
    root, commit = repository
    path = root / ALLREDUCE
    text = path.read_text()
    try:
        path.write_text(text.replace("world_size: 8", "world_size: 4"))
        then = [with_environment(record, sources={"conf": "sha256:0"}, git={"commit": commit}) for record in records]
        assert is_same(then)
        unknown = [with_environment(record, git={"commit": "e" * 40}) for record in then]
        (told,) = composed_again(unknown).unsure
        assert "world_size: recorded 8, composed 4" in told[1]
    finally:
        path.write_text(text)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A repository of conf/ alone, which has changed since its only commit; and the commit."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "conf", root / "conf")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y", "-C", str(root)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "then"]):
        subprocess.run([*git, *words], check=True)
    (root / "conf" / "exp" / "mine2.yaml").write_text("# later\n")
    return root, subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()


@pytest.fixture
def repository(project, monkeypatch):
    """The project, at which an audit looks."""
    monkeypatch.setattr(recomposed, "CONF", project[0] / "conf")
    return project


def of_tree(records, commit):
    """Records that were composed from an experiment that conf/ of a commit lacks."""
    git = {"commit": commit, "dirty": True}
    return [
        with_environment(with_request(one, overrides=["+exp=mine"]), sources={"conf": "sha256:0"}, git=git)
        for one in records
    ]


ALLREDUCE = "conf/exp/allreduce_bf16.yaml"


def test_what_a_changed_conf_of_no_commit_gave_is_not_comparable(two, repository):
    """An experiment that was never committed, and another file of conf/ that came since."""
    found = composed_again(of_tree(two, repository[1]))
    ((_, said),) = found.unsure
    assert found.different == []
    same_text(said)


def test_a_changed_conf_excuses_another_value_and_no_disagreement(two, repository):
    git = {"commit": repository[1], "dirty": True}
    records = [with_environment(one, sources={"conf": "sha256:0"}, git=git) for one in two]
    assert is_same(records)
    others = [with_configuration(one, seed=7) for one in records]
    ((_, said),) = composed_again(others).unsure
    assert said.endswith("they are not applied here; seed: recorded 7, composed 3")
    line = ("-m", *records[0].request.command_line, "root=0,1")
    ((_, said),) = composed_again([with_request(one, command_line=line) for one in records]).unsure
    assert said.endswith("they are not applied here; the command line asks for 2 jobs, the record says 1")
    ((_, said),) = composed_again([records[0], others[1]]).different
    assert "not one request" in said


def test_a_claim_of_changes_that_the_digest_denies_is_no_excuse(two, repository):
    """The digest of conf/ in the record is that of the commit's: nothing was untracked there."""
    commit = repository[1]
    with recomposed._configurations_of(commit) as (conf, _):
        digest = recomposed.source_digests(conf.parent)["conf"]
    liars = [with_environment(one, sources={"conf": digest}) for one in of_tree(two, commit)]
    assert len(composed_again(liars).different) == 1


def counted(records):
    jobs = jobs_of(records)
    return cases(jobs, configurations(jobs, silent)[0])


@pytest.mark.slow
@pytest.mark.parametrize("algorithms", ["auto", "[one_shot,two_shot]"])
def test_cases_that_were_asked_for_are_counted(made, algorithms):
    records = made("-m", f"algorithms={algorithms}", "world_size=2,3", "sizes=[8,64]")
    whole = counted(records)
    assert whole == Expected(len(records))
    gone = records[3]
    found = counted([record for record in records if record is not gone])
    assert found.missing == [((gone.request.command, gone.request.job), gone.id)]
    last = {record.request.job: record for record in records}
    assert found.passed_over == ([] if gone in last.values() else found.missing)
    assert counted([record for record in records if record is not last[0]]).passed_over == []
    added = with_case(gone, seed=99)
    assert [case for _, case in counted([*records, added]).unexpected] == [added.id]


def test_a_named_algorithm_of_which_nothing_is_there_is_missed(two):
    assert len(counted([record for record in two if record.case.algorithm != "two_shot"]).missing) == 1


@pytest.mark.slow
@pytest.mark.parametrize("algorithms", ["auto", "all"])
def test_an_algorithm_of_an_open_request_that_is_gone_is_missed(algorithms, made):
    """The catalogue says which are meant; that of another version may have had others."""
    records = made(f"algorithms={algorithms}", "sizes=[8]")
    left = [record for record in records if record.case.algorithm != "two_shot"]
    assert 0 < len(left) < len(records)
    gone = [record.id for record in records if record not in left]
    assert [case for _, case in counted(left).missing] == gone
    older = [with_environment(one, sources={**one.environment.sources, "kernels": "sha256:0"}) for one in left]
    assert counted(older).missing == []


@pytest.mark.slow
@pytest.mark.parametrize("sweep", [("seed=0,1",), ("seed=range(2)",), ("seed=0", "world_size=choice(2,3)")])
def test_a_job_of_a_sweep_that_is_gone_is_named(sweep, made):
    records = made("-m", "algorithms=[one_shot]", "sizes=[8]", *sweep)
    assert (len(composed_again(records).agree), composed_again(records).different) == (2, [])
    left = [with_request(record, jobs=1) for record in records if record.request.job == 0]
    ((_, what),) = composed_again(left).different
    assert what == "the command line asks for 2 jobs, the record says 1"


def test_secrets_and_home_folders_are_found_wherever_they_are(two):
    clean = recompute.secrets(two)
    assert (clean.different, len(clean.agree) >= 2) == ([], True)
    token = "hf_" + "Abcdefgh0123456789"
    leaks = [
        with_environment(two[0], variables={"allowed": {"A": "x", "B": token}}),
        with_request(two[1], command_line=["python", "cache_dir=/home/somebody/x"]),
    ]
    found = [(case, where.split()[0]) for case, where in recompute.secrets(leaks).different]
    assert found == [(two[0].id, "environment.variables.allowed.B"), (two[1].id, "request.command_line")]
    assert token not in str(recompute.secrets(leaks))


OWN = """\
sum:
  op: all_reduce
  kernel: one_shot.ptx:one_shot
  launch: {grid: 1, block: 256}
  arguments: [{peers: input}, {peers: flags}, flags, epochs, output, rank, world_size, {u32: numel}]
  workspaces: {flags: {numel: grid*world_size}, epochs: {numel: grid}}
  dtypes: [float32]
  fold: rank_order
"""


def test_a_kernel_beside_the_user_runs_again_and_from_elsewhere_the_reason_is_told(tmp_path, monkeypatch):
    """The worker ran in the project's folder, where relative places lead nowhere."""
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "kernels.yaml").write_text(OWN, encoding="utf-8")
    shutil.copy(ROOT / "conf" / "exp" / "own" / "one_shot.ptx", tmp_path / "my")
    monkeypatch.chdir(tmp_path)
    words = ["-q", "op=all_reduce", "algorithms=[my/kernels.yaml:sum]", "sizes=[64]"]
    words += ["world_size=2", "check.races=false"]
    assert main([*words, "fabric=simulator", "track=none"]) == 0
    records = read([tmp_path / "records"])
    assert "data VERIFIED: 1 of 1 cases recomputed" in asked(records, [tmp_path / "records"], rerun=Rerun(1))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    said = asked(records, [tmp_path / "records"], rerun=Rerun(1))
    assert "data VERIFIED" not in said
    assert "my/kernels.yaml; start in the folder that the command ran in" in said


def found(missing, unexpected, unsure):
    return Expected(4, missing, [one for one in missing if one is OVER], unexpected, unsure)


A, B, OVER = (("a", 0), "x"), (("b", 1), "y"), (("a", 0), "z")


@pytest.mark.parametrize(
    ("cases", "not_run", "outcomes"),
    [
        (found([], [], []), {"a": []}, ["VERIFIED"]),
        (found([A], [], []), {"a": []}, ["FINDING"]),
        (found([A], [], []), {"a": [(0, "x")]}, ["VERIFIED"]),
        (found([A], [], []), {}, ["NOT COMPARABLE"]),
        (found([A, B], [], []), {"b": []}, ["NOT COMPARABLE", "FINDING"]),
        (found([A], [B], []), {}, ["NOT COMPARABLE", "FINDING"]),
        (found([], [], [("job 1 of a", "why")]), {}, ["VERIFIED", "NOT COMPARABLE"]),
        (found([A] * 4, [], []), {"a": [(0, "x")]}, ["NOT CAPTURED"]),
    ],
)
def test_a_case_that_is_missing_may_not_have_run(cases, not_run, outcomes):
    """command.json says which did not; a bundle has none, and may be of a command that was interrupted."""
    points = cases.points(not_run, is_whole=False)
    assert [str(point.outcome) for point in points] == outcomes


@pytest.mark.parametrize(("is_whole", "outcomes"), [(True, ["NOT COMPARABLE", "FINDING"]), (False, ["NOT COMPARABLE"])])
def test_a_case_that_a_bundles_command_passed_over_was_taken_away(is_whole, outcomes):
    """A job runs its cases in order. Single files, and what a tracker holds, need not be all of a command."""
    points = list(found([A, OVER], [], []).points({}, is_whole))
    assert [str(point.outcome) for point in points] == outcomes
    assert ("z: missing of a" in points[-1].evidence) == ("FINDING" in outcomes)
