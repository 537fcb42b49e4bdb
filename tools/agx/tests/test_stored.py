import pytest

from agx import stored
from agx.measure import Measured, Specialization
from agx.mesa import CLASSES, Statistics

OF = Specialization("norm", "norm_4_2", (("whole", 1),), (256, 1, 1))


def table(of=OF, refused=None, call="rms_norm float32 4096", **figures):
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
    return stored.read(stored.write(stored.rows([measured], {of: [call]})))


def test_chips_with_the_same_figures_share_a_row():
    (row,) = table()
    assert row["chip"] == "g13g g14g" and row["constants"] == "whole=1"
    assert (row["group"], row["compiled_for"], row["half_registers"]) == ("256", "512", "47")


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


def test_another_plan_of_a_call_is_compared_with_the_one_before():
    other = Specialization("norm", "norm_4_4", (("whole", 1), ("looped", 1)), (256, 1, 1))
    assert stored.worse(table(), table(other)) == []
    assert len(stored.worse(table(), table(other, spills=2))) == 2


def test_what_has_no_stored_figures_is_named():
    found = stored.worse([], table())
    assert found[0].endswith("no figures are stored")


def test_a_row_has_the_worst_of_what_an_op_launches_of_a_kernel():
    few, many = (table(call=f"rms_norm float32 {n} unaligned", instructions=n) for n in (64, 128))
    few[0] |= {"spills": "2", "threads_per_core": "512"}
    other = table(call="layer_norm float32 64")
    (row, *others) = stored.worst([*few, *many, *other, *table(refused="clang: no")])
    assert (row["instructions"], row["spills"], row["threads_per_core"]) == ("128", "2", "512")
    assert others == other and stored.worse([row, *other], [*few, *many]) == []
