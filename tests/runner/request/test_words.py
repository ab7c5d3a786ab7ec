"""What an override can go on with while it is typed: every key, and the values of all keys that take words."""

import pytest

from cases.dtypes import ALL, REDUCTIONS
from cases.ops import MATMULS, OPS
from runner.request.compose import compose_jobs, hydra_over
from runner.request.experiments import experiments
from runner.request.schema import KEYS
from runner.request.words import words_for


def texts(incomplete, *given, config_dir=None):
    return [word.text for word in words_for(incomplete, given, config_dir)]


def test_every_key_is_offered():
    top, found = texts(""), set(texts(""))
    for word in top:
        if word.endswith("."):
            found |= set(texts(word))
    assert {f"{key}=" for key in KEYS} <= found
    assert {"+exp=", "exp=", "fabric=", "track=", "sizes="} <= found
    assert "timing=" not in found, "a section, and no group of files"
    assert all(word.is_open for word in words_for(""))


def test_every_key_of_words_offers_them():
    for key in KEYS.values():
        if key.words:
            assert texts(f"{key.name}=") == [f"{key.name}={word}" for word in key.words]


def test_values():
    expected = {
        "op=all_r": ["op=all_reduce"],
        "op=": [f"op={op}" for op in OPS],
        "dtype=": ["dtype=auto", *(f"dtype={one}" for one in ALL)],
        "dtype=float16/": ["dtype=float16/native", "dtype=float16/float32"],
        "reduction=": ["reduction=auto", *(f"reduction={one}" for one in REDUCTIONS)],
        "accumulator=f": ["accumulator=float32", "accumulator=float16"],
        "fabric=": ["fabric=auto", "fabric=nvshmem", "fabric=simulator"],
        "track=n": ["track=none"],
        "fabric.arch=sm_9": ["fabric.arch=sm_90", "fabric.arch=sm_90a"],
        "sizes=": ["sizes=["],
        "timing.calls=": ["timing.calls=null"],
        "+e": ["+exp="],
        "++che": ["++check=", "++check."],
        "++check=f": ["++check=false"],
        "op=all_reduce,b": ["op=all_reduce,broadcast", "op=all_reduce,barrier"],
        "fabric.schedule=fair,": [f"fabric.schedule=fair,{one}" for one in ("random", "adversarial", "priority")],
        **{one: [] for one in ("sizes=[1", "~", "nonsense=", "nonsense.", "hydra.mode=")},
    }
    assert {incomplete: texts(incomplete) for incomplete in expected} == expected


def test_values_beside_others():
    barrier = {
        "algorithms=[m": ["algorithms=[multimem"],
        "algorithms=[peers,p": ["algorithms=[peers,push"],
        "algorithms=[peers,n": ["algorithms=[peers,nvshmem_sync_all"],
        "algorithms=d": ["algorithms=device_nvshmem"],
        "algorithms=[peers": ["algorithms=[peers,", "algorithms=[peers]"],
        "algorithms=[peers],[m": ["algorithms=[peers],[multimem"],
        "algorithms=a": ["algorithms=auto", "algorithms=all"],
    }
    assert {incomplete: texts(incomplete, "op=barrier") for incomplete in barrier} == barrier
    assert texts("algorithms=pu", "+exp=send_recv_bf16") == ["algorithms=pull", "algorithms=push"]
    assert texts("baselines=", "op=reduce") == ["baselines=auto", "baselines=none", "baselines=[", "baselines=nccl"]
    assert texts("baselines=[nc", "op=reduce") == ["baselines=[nccl"]


def test_experiments_come_with_their_lines():
    assert {word.text.removeprefix("+exp="): word.help for word in words_for("+exp=")} == experiments()


def test_folders_of_configurations_are_looked_at_too(tmp_path):
    for group in ("exp", "fabric"):
        (tmp_path / group).mkdir()
        (tmp_path / group / "mine.yaml").write_text("op: barrier\n")
    assert texts("+exp=mi", config_dir=tmp_path) == ["+exp=mine"]
    assert texts("fabric=mi", config_dir=tmp_path) == ["fabric=mine"]
    assert texts("algorithms=[p", "+exp=mine", config_dir=tmp_path) == ["algorithms=[peers", "algorithms=[push"]


@pytest.mark.slow
def test_what_is_offered_is_taken():
    """Each word of a key is one that the schema takes: by itself, or with the other words that it asks for."""
    asked_for = {"dtype=uint8": ["op=all_gather"], "fabric.share_gpus=true": ["timing.mode=none"]}
    asked_for["fabric.granularity=access"] = ["fabric.schedule=random"]
    asked_for |= {f"op={one.op}": ["m=128", "n=128", "k=64"] for one in MATMULS}
    others = ("root", "algorithms", "baselines", "reduction", "accumulator")
    with hydra_over():
        for key in set(KEYS) - {*others}:
            for text in texts(f"{key}="):
                if not text.endswith("["):
                    compose_jobs([text, *asked_for.get(text, [])], False)
