"""One row for each XID of NVIDIA's catalogue that the fact sheet lists: class, plugin, action, whether a job pays."""

import pytest

from scheduler.health.conditions import grade_of
from scheduler.health.findings import Grade
from scheduler.health.xids import IGNORED_BY_PLUGIN, XIDS, Effect, gravest, xid_of

APP, HW, DRV, FW, SW, NOTE = "application", "hardware", "driver", "firmware", "software", "notice"
# code: (class, NVIDIA's immediate action, plugin ignores it, effect here)
TABLE = {
    8: (APP, "RESTART_APP", False, "job"),
    13: (APP, "RESTART_APP", True, "job"),
    31: (APP, "RESTART_APP", True, "job"),
    32: (APP, "RESTART_APP", False, "job"),
    37: (NOTE, "IGNORE", False, "note"),
    38: (DRV, "IGNORE", False, "note"),
    **dict.fromkeys((39, 40, 41, 70, 71, 72, 75, 76, 77, 80, 85), (APP, "RESTART_APP", False, "job")),
    43: (APP, "IGNORE", True, "job"),
    44: (NOTE, "IGNORE", False, "note"),
    45: (NOTE, "WORKFLOW_XID_45", True, "note"),
    46: (DRV, "RESET_GPU", False, "out"),
    48: (HW, "WORKFLOW_XID_48", False, "out"),
    54: (HW, "CHECK_MECHANICALS", False, "out"),
    60: (APP, "RESTART_APP", False, "job"),
    61: (FW, "CONTACT_SUPPORT", False, "out"),
    62: (FW, "RESET_GPU", False, "out"),
    63: (HW, "IGNORE", False, "idle_reset"),
    64: (HW, "RESET_GPU", False, "out"),
    66: (NOTE, "IGNORE", False, "note"),
    67: (NOTE, "IGNORE", False, "note"),
    68: (APP, "RESTART_APP", True, "job"),
    69: (APP, "RESTART_APP", False, "job"),
    74: (HW, "WORKFLOW_NVLINK_ERR", False, "out"),
    78: (SW, "UPDATE_SWFW", False, "watch"),
    79: (HW, "RESTART_BM", False, "out"),
    92: (HW, "IGNORE", False, "watch"),
    93: (NOTE, "IGNORE", False, "note"),
    94: (HW, "RESTART_APP", False, "idle_reset"),
    95: (HW, "RESET_GPU", False, "out"),
    109: (DRV, "RESET_GPU", True, "out"),
    110: (HW, "RESET_GPU", False, "out"),
    119: (FW, "RESET_GPU", False, "out"),
    120: (FW, "RESET_GPU", False, "out"),
    121: (HW, "IGNORE", False, "watch"),
    136: (HW, "RESET_GPU", False, "out"),
    137: (APP, "IGNORE", False, "job"),
    140: (HW, "RESET_GPU", False, "out"),
    **dict.fromkeys((141, 152, 153, 160, 161), (NOTE, "IGNORE", False, "note")),
    142: (NOTE, "CONTACT_SUPPORT", False, "watch"),
    143: (HW, "RESET_GPU", False, "out"),
    **dict.fromkeys(range(144, 151), (HW, "WORKFLOW_NVLINK5_ERR", False, "watch")),
    151: (SW, "RESTART_VM", False, "watch"),
    154: (NOTE, "XID_154_EVAL", False, "watch"),
    155: (HW, "RESET_GPU", False, "out"),
    156: (HW, "RESET_GPU", False, "idle_reset"),
    157: (HW, "IGNORE", False, "watch"),
    158: (HW, "RESET_GPU", False, "out"),
    159: (HW, "CHECK_UVM", False, "watch"),
    **dict.fromkeys((162, 163, 164, 165, 166, 169, 170), (NOTE, "", False, "note")),
    167: (HW, "", False, "out"),
    168: (HW, "", False, "out"),
    171: (HW, "", False, "watch"),
    172: (HW, "", False, "watch"),
}  # fmt: skip
# Seen by GKE's plugin, not in the fact sheet's table.
BESIDE = {123}


def test_table_has_every_code_and_no_other() -> None:
    assert set(XIDS) == set(TABLE) | BESIDE


@pytest.mark.parametrize("code", sorted(TABLE))
def test_xid_means_what_the_facts_say(code: int) -> None:
    kind, nvidia, ignored, effect = TABLE[code]
    row = xid_of(code)
    assert (row.kind, row.nvidia, row.ignored, row.effect) == (kind, nvidia, ignored, effect)
    assert row.meaning
    assert row.action
    # A job pays for its own faults only.
    assert row.spares_job == (effect in ("out", "watch", "idle_reset"))
    assert (row.effect is Effect.JOB) == (kind == APP)


def test_plugin_ignores_just_its_own_six() -> None:
    assert {code for code, row in XIDS.items() if row.ignored} == IGNORED_BY_PLUGIN


def test_gravest_decides_in_a_burst_and_an_unknown_code_is_watched() -> None:
    burst = gravest([45, 31, 79, 63])
    assert burst is not None
    assert burst.code == 79
    assert gravest([0]) is None
    assert xid_of(999).effect is Effect.WATCH
    assert grade_of(Effect.OUT) is Grade.UNHEALTHY
    assert grade_of(Effect.JOB) is Grade.NOTE
