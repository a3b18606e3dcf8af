"""The readers, checked against prometheus_client's parser, and every sample read for what it shows."""

from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.health.names import WANTED
from scheduler.health.readings import Holder, holder_of, read_page
from scheduler.health.text import samples

FOLDER = Path(__file__).parent.parent / "fixtures" / "dcgm"
PAGES = sorted(FOLDER.glob("*.prom"))
BAD = "GPU-e8f61eef-4f96-4aa7-a5c5-54f7d604757b"


def page(name: str) -> str:
    return (FOLDER / name).read_text()


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_samples_agree_with_prometheus_client_on_every_page(path: Path) -> None:
    text = path.read_text()
    # Their parser adds `_total` to the name of every counter.
    theirs = Counter(
        (name, tuple(sorted(sample.labels.items())), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if (name := sample.name.removesuffix("_total")) in WANTED
    )
    ours = Counter((s.name, tuple(sorted(s.labels.items())), s.value) for s in samples(text))
    assert ours == theirs
    assert len(ours) > 15


def test_samples_read_escapes_spaces_time_stamps_and_drop_what_is_no_number() -> None:
    text = (
        '  DCGM_FI_DEV_GPU_TEMP { gpu = "0", UUID="G\\"1\\\\\\n}" } 61 1700000000000\n'
        'DCGM_FI_DEV_GPU_UTIL{gpu="0"} NaN\nDCGM_FI_DEV_GPU_UTIL{gpu="0"} x\nDCGM_FI_DEV_GPU_TEMP 5\n'
        "# DCGM_FI_DEV_GPU_TEMP 7\nother_metric 3\nDCGM_FI_DEV_GPU_UTIL\n\n"
    )
    found = list(samples(text))
    assert [(s.name, s.value) for s in found] == [
        ("DCGM_FI_DEV_GPU_TEMP", 61.0),
        ("DCGM_FI_DEV_GPU_TEMP", 5.0),
    ]
    assert dict(found[0].labels) == {"gpu": "0", "UUID": 'G"1\\\n}'}


@pytest.mark.parametrize(
    ("name", "generation"),
    [
        ("dcgm_h100_node.prom", "A"),
        ("dcgm_h100_node_default_metrics_only.prom", "A"),
        ("dcgm_h100_node_genB_hostname.prom", "B"),
        ("dcgm_h100_node_genC_reconstructed.prom", "C"),
    ],
)
def test_read_page_says_the_same_of_one_node_in_every_generation(
    name: str, generation: str
) -> None:
    readings = read_page(page(name))
    assert len(readings) == 8
    assert {r.generation for r in readings.values()} == {generation}
    assert {r.node for r in readings.values()} == {"gpu-h100-0022"}
    assert {r.driver for r in readings.values()} == {"570.158.01"}
    by_index = {r.index: r for r in readings.values()}
    assert by_index[0].utilisation == pytest.approx(97)
    assert by_index[0].values["memory_used_mib"] == pytest.approx(73812)
    assert by_index[0].values["temperature_c"] == 62
    assert by_index[0].holders == [Holder("team-a", "llm-pretrain-worker-2", "trainer")]
    assert by_index[5].holders == []
    assert readings[BAD].xid == 95
    assert readings[BAD].xid_message == "Uncontained ECC error"
    assert [i for i, r in sorted(by_index.items()) if r.xid] == [7]


def test_read_page_knows_ecc_only_where_the_exporter_tells_it() -> None:
    full = read_page(page("dcgm_h100_node.prom"))[BAD]
    assert full.ecc_known
    assert full.values["ecc_dbe_vol"] == 1
    assert full.values["remap_pending"] == 1
    assert full.watches["MEM"] == (20, "DCGM_FR_VOLATILE_DBE_DETECTED")
    assert full.xid_window == {95: 1}
    default = read_page(page("dcgm_h100_node_default_metrics_only.prom"))[BAD]
    assert not default.ecc_known
    assert "ecc_dbe_vol" not in default.values  # unknown, never zero
    assert default.watches == {}


def test_read_page_joins_the_instances_of_a_mig_gpu() -> None:
    readings = sorted(read_page(page("dcgm_a100_mig_node.prom")).values(), key=lambda r: r.index)
    assert [r.index for r in readings] == [0, 1]
    assert all(r.mig for r in readings)
    assert readings[0].utilisation == pytest.approx(41)  # the engine's, of the busiest instance
    assert {h.pod for h in readings[0].holders} == {"infer-0-0", "infer-0-3"}
    assert readings[0].xid == 0
    assert readings[1].holders == []


@pytest.mark.parametrize(
    ("labels", "through", "pod"),
    [
        ({"pod": "job-0", "namespace": "n", "container": "c"}, False, "job-0"),
        ({"pod_name": "job-0", "pod_namespace": "n", "container_name": "c"}, False, "job-0"),
        ({"exported_pod": "job-0", "exported_namespace": "n", "pod": "nvidia-dcgm-exporter-x"}, True, "job-0"),
        ({"pod": "nvidia-dcgm-exporter-x", "namespace": "gpu-operator"}, True, None),
        ({"pod": "job-0", "namespace": "n"}, True, "job-0"),
        ({"pod": "", "namespace": ""}, False, None),
        ({}, False, None),
    ],
)  # fmt: skip
def test_holder_of_reads_both_forms_of_pod_labels(
    labels: dict[str, str], through: bool, pod: str | None
) -> None:
    holder = holder_of(labels, through_prometheus=through)
    assert (holder.pod if holder else None) == pod


def test_read_page_drops_blank_sentinels_and_reads_old_and_nvlink_labels() -> None:
    text = (
        'DCGM_FI_DEV_GPU_TEMP{gpu="0",uuid="G"} 2147483632\n'
        'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu="0",uuid="G"} 9223372036854775794\n'
        'DCGM_FI_DEV_POWER_USAGE{gpu="0",uuid="G"} 140737488355328\n'
        'DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL{nvlink="3",gpu="0",gpu_uuid="G"} 4\n'
        'DCGM_FI_DEV_GPU_TEMP{nvswitch="1"} 40\n'
    )
    readings = read_page(text)
    assert list(readings) == ["G"]
    assert readings["G"].values == {"nvlink_recovery": 4}


def test_read_page_believes_the_gravest_of_a_stale_and_a_new_code() -> None:
    text = (
        'DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="G",err_code="31",err_msg="page fault"} 31\n'
        'DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="G",err_code="79",err_msg="fell off"} 79\n'
        'DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="G",err_code="0",err_msg="No Error"} 0\n'
    )
    reading = read_page(text)["G"]
    assert (reading.xid, reading.xid_message) == (79, "fell off")
