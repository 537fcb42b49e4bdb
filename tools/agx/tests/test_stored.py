import dataclasses

import pytest

from agx import stored
from agx.frontend import IN_MEMORY
from agx.measure import Measured, Specialization
from agx.mesa import CLASSES, Statistics

OF = Specialization("norm", "norm_4_2", (("whole", 1),), (256, 1, 1))


def table(of=OF, refused=None, call="rms_norm float32 4096", more=(), **figures):
    figures = {
        "half_registers": 47,
        "threads_per_core": 1024,
        "instructions": 100,
        "spills": 0,
        "fills": 0,
        "code_bytes": 760,
        "threadgroup_bytes": 1024,
    } | figures
    result = refused or Statistics(classes=dict.fromkeys(CLASSES, 1), **figures)
    measured = Measured(of, (512, 1, 1), {"g13g": result, "g14g": result})
    return stored.read(stored.write(stored.rows([measured], {of: [call, *more]})))


def test_chips_with_the_same_figures_share_a_row():
    (row,) = table()
    assert row["chip"] == "g13g g14g" and row["constants"] == "whole=1"
    assert (row["group"], row["compiled_for"], row["half_registers"]) == ("256", "512", "47")


def test_each_op_that_launches_a_specialization_has_a_row():
    others = ["rms_norm float16 4096", "add_rms_norm float32 64", "add_rms_norm float32 128"]
    rows = table(more=others)
    assert [row["call"] for row in rows] == ["rms_norm float32 4096", "add_rms_norm float32 64"]


def test_the_same_figures_are_not_worse():
    assert stored.worse(table(), table()) == []


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        ({"spills": 1}, "1 spills, where there were 0"),
        ({"threads_per_core": 896}, "896 threads per core"),
        ({"instructions": 111}, "111 instructions"),
        ({"refused": "private arrays left in memory"}, "refused: private arrays"),
    ],
)
def test_worse_figures_are_named_for_each_chip(figures, reason):
    found = stored.worse(table(), table(**figures))
    assert len(found) == 2
    assert reason in found[0] and "norm_4_2 of rms_norm float32 4096 on g13g" in found[0]


@pytest.mark.parametrize(
    "figures", [{"instructions": 110}, {"half_registers": 49}, {"code_bytes": 900}]
)
def test_a_little_more_is_not_worse(figures):
    assert stored.worse(table(), table(**figures)) == []


def test_figures_in_place_of_a_refusal_are_not_worse():
    assert stored.worse(table(refused="clang: no"), table(spills=3)) == []


def test_private_arrays_in_memory_are_worse_than_any():
    arrays = table(refused=f"{IN_MEMORY} (allocas 3, generic 0)")
    assert len(stored.worse(arrays, arrays)) == 2
    other = table(refused="clang: no")
    assert stored.worse(other, other) == []


def test_a_kernel_for_other_threads_is_compared_with_the_one_before():
    old = [row | {"compiled_for": "1024"} for row in table()]
    assert stored.worse(old, table()) == []
    assert len(stored.worse(old, table(spills=2))) == 2


def test_kernels_of_ops_without_figures_are_missing():
    other = dataclasses.replace(OF, kernel="norm_4_4")
    calls = {OF: ["rms_norm float32 64", "layer_norm float32 64"], other: ["rms_norm float32 128"]}
    assert stored.missing(table(), calls) == [
        "norm_4_2 of layer_norm: no figures are stored",
        "norm_4_4 of rms_norm: no figures are stored",
    ]
    assert stored.missing(table(), {OF: ["rms_norm float16 64"]}) == []


def test_figures_of_what_is_not_there_are_stale():
    calls, constants = {OF: ["rms_norm float16 64"]}, {"norm": ["whole", "center"]}
    assert stored.stale(table(), calls, constants) == []
    assert stored.stale(table(), {OF: ["layer_norm float16 64"]}, constants) == [
        "norm_4_2 of rms_norm float32 4096: it is not launched"
    ]
    assert stored.stale(table(), calls, {"norm": ["center"]}) == [
        "norm_4_2 of rms_norm float32 4096: there is no function constant whole"
    ]


def test_a_row_has_the_worst_of_what_an_op_launches_of_a_kernel():
    few, many = (table(call=f"rms_norm float32 {n} unaligned", instructions=n) for n in (64, 128))
    few[0] |= {"spills": "2", "threads_per_core": "512"}
    other = table(call="layer_norm float32 64")
    (row, *others) = stored.worst([*few, *many, *other, *table(refused="clang: no")])
    assert (row["instructions"], row["spills"], row["threads_per_core"]) == ("128", "2", "512")
    assert others == other and stored.worse([row, *other], [*few, *many]) == []
