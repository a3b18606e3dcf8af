"""Replays: small traces by hand, the published anchor, gangs on the fewest leaves."""

import gzip
import json
import math
import random
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from scheduler.core.outputs import Plan
from scheduler.replay.engine import Replay, policy_queue
from scheduler.replay.forecast import ForecastingReplay, accuracy
from scheduler.replay.report import report
from scheduler.replay.trace import TraceError, read_jobs, read_nodes, shuffled

TRACES = Path(__file__).parent.parent / "fixtures" / "traces"
HEADER = (
    "job_id,submit_s,duration_s,replicas,gpus_per_replica,gpu_milli,cpu_per_replica,"
    "mem_gib_per_replica,gpu_model,tenant,priority_class,estimate_s"
)


def four_nodes():
    return read_nodes(
        ["node,gpus,gpu_model,cpu,mem_gib,leaf,spine", *(f"n{i},1,,,,," for i in range(4))]
    )


def trace(*rows):
    """Rows are (submit, duration, replicas, estimate)."""
    lines = [HEADER]
    for number, (submit, duration, replicas, estimate) in enumerate(rows):
        lines.append(f"{number},{submit},{duration},{replicas},1,1000,,,,u,,{estimate}")
    return read_jobs(lines, ())


def starts(policy, *rows):
    nodes, levels = four_nodes()
    replay = Replay(nodes, levels, policy_queue(policy))
    replay.run(trace(*rows))
    by_job = {run.job.waiting.id: run.started_at for run in replay.runs}
    return [by_job[job] for job in sorted(by_job)]


ROWS = (
    (0, 100, 3, 100),  # runs
    (1, 50, 4, 50),  # the head, needs all
    (2, 90, 1, 90),  # ends before the head can start
    (3, 200, 1, 200),  # would delay the head
)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fifo", [0, 100, 150, 150]),
        ("skip", [0, 292, 2, 92]),
        ("easy", [0, 100, 2, 150]),
        ("conservative", [0, 100, 2, 150]),
        ("default", [0, 100, 2, 150]),
    ],
)
def test_policies_differ_as_they_should(policy, expected):
    assert starts(policy, *ROWS) == expected


def test_five_hundred_jobs_of_one_user_delay_a_colleagues_first_by_one_length_at_most():
    """An hour each, on four nodes: 125 hours of work are ahead when the colleague comes."""
    rows = [f"{i},0,3600,1,1,1000,,,,busy,,3600" for i in range(500)]
    rows.append("500,5000,3600,4,1,1000,,,,rare,,3600")
    nodes, levels = four_nodes()
    replay = Replay(nodes, levels, policy_queue("default"))
    replay.run(read_jobs([HEADER, *rows], ()))
    assert len(replay.runs) == 501
    (rare,) = [run for run in replay.runs if run.job.waiting.ask.user == "rare"]
    assert rare.started_at == 7_200


def test_job_that_ends_early_lets_the_head_start_early():
    assert starts("easy", (0, 40, 3, 100), (1, 50, 4, 50)) == [0, 40]


def test_job_that_never_fits_is_counted_and_blocks_nobody():
    nodes, levels = four_nodes()
    replay = Replay(nodes, levels, policy_queue("fifo"))
    replay.run(trace((0, 10, 5, 10), (1, 10, 4, 10)))
    assert len(replay.never_fit) == 1
    assert [run.started_at for run in replay.runs] == [1]


def test_every_decision_is_a_plan_of_the_one_entry_point():
    nodes, levels = four_nodes()
    replay = Replay(nodes, levels, policy_queue("easy"))
    made = replay.plan_at(0.0)
    assert isinstance(made, Plan)
    assert type(made).__module__ == "scheduler.core.outputs"
    assert Replay.plan_at.__globals__["plan"].__module__ == "scheduler.core.planner"


def test_shuffle_keeps_times_and_jobs():
    jobs = trace(*ROWS)
    mixed = shuffled(jobs, 7)
    assert [j.waiting.submitted_at for j in mixed] == [j.waiting.submitted_at for j in jobs]
    assert sorted(j.waiting.id for j in mixed) == sorted(j.waiting.id for j in jobs)
    assert mixed == shuffled(jobs, 7)
    assert mixed != shuffled(jobs, 8)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("1,0,10,x,1,1000,,,,u,,10", "line 2: replicas is 'x'"),
        ("1,zero,10,1,1,1000,,,,u,,10", "line 2: submit_s is 'zero'"),
        ("1,0,,1,1,1000,,,,u,,10", "line 2: submit_s and duration_s"),
        ("1,0,-10,1,1,1000,,,,u,,10", "line 2: duration_s is '-10'"),
        ("1,0,nan,1,1,1000,,,,u,,10", "line 2: duration_s is 'nan'"),
        ("1,0,10,-1,1,1000,,,,u,,10", "line 2: replicas is '-1'"),
    ],
)
def test_bad_row_names_line_and_column(row, said):
    with pytest.raises(TraceError, match=said):
        read_jobs([HEADER, row], ())


def test_command_prints_one_json_object(tmp_path):
    nodes, jobs = tmp_path / "nodes.csv", tmp_path / "jobs.csv.gz"
    nodes.write_text("node,gpus,gpu_model,cpu,mem_gib,leaf,spine\nn0,8,,,,a,s\nn1,8,,,,a,s\n")
    with gzip.open(jobs, "wt") as stream:
        stream.write(f"{HEADER}\n1,0,100,2,8,1000,,,,u,,200\n2,50,100,1,8,1000,,,,u,,200\n")
    out = StringIO()
    call_command("replay", str(jobs), "--nodes", str(nodes), "--json", stdout=out)
    figures = json.loads(out.getvalue())
    assert figures.pop("wall_s") > 0
    assert figures == {
        "jobs": 2,
        "never_fit": 0,
        "wait_mean_s": 25.0,
        "wait_p50_s": 0.0,
        "wait_p95_s": 50.0,
        "wait_p99_s": 50.0,
        "wait_max_s": 50.0,
        "wait_mean_ge8gpu_s": 25.0,
        "bounded_slowdown_mean": 1.25,
        "bounded_slowdown_max": 1.5,
        "flow_mean_s": 125.0,
        "makespan_s": 200.0,
        "utilization": 0.75,
        "multi_node_gangs": 1,
        "multi_node_on_min_leaves": 1.0,
    }


@pytest.mark.parametrize("empty", ["jobs.csv", "nodes.csv"])
@pytest.mark.parametrize("lines", [0, 1])
def test_command_refuses_a_file_without_rows(tmp_path, empty, lines):
    files = {
        "jobs.csv": f"{HEADER}\n1,0,100,2,8,1000,,,,u,,200\n",
        "nodes.csv": "node,gpus,gpu_model,cpu,mem_gib,leaf,spine\nn0,8,,,,a,s\n",
    }
    for name, text in files.items():
        head = "".join(text.splitlines(keepends=True)[:lines])
        (tmp_path / name).write_text(head if name == empty else text)
    with pytest.raises(CommandError, match=f"{empty}: holds no (job|node), so there is nothing"):
        call_command("replay", tmp_path / "jobs.csv", "--nodes", tmp_path / "nodes.csv")


def test_command_names_a_file_that_is_missing(tmp_path):
    with pytest.raises(CommandError, match="nodes"):
        call_command("replay", "jobs.csv", "--nodes", str(tmp_path / "nodes.csv"))


def kth_sp2():
    nodes, levels = read_nodes((TRACES / "kth_sp2.nodes.csv").read_text().splitlines())
    with gzip.open(TRACES / "kth_sp2.csv.gz", "rt") as stream:
        return nodes, levels, read_jobs(stream.read().splitlines(), levels)


def replayed(policy, most=None):
    nodes, levels, jobs = kth_sp2()
    replay = Replay(nodes, levels, policy_queue(policy))
    replay.run(jobs[:most])
    return report(replay.runs, replay.never_fit, nodes, 0.0)


@pytest.mark.slow
def test_easy_lands_on_the_published_figures():
    """Gaussier et al., SC'15: EASY with user estimates on KTH-SP2. The figures are those of the whole trace."""
    figures = replayed("easy")
    assert figures["bounded_slowdown_mean"] == pytest.approx(92.58, rel=0.002)
    assert figures["flow_mean_s"] == pytest.approx(15_696.8, rel=0.001)
    assert figures["bounded_slowdown_max"] == pytest.approx(14_805.2, abs=0.1)
    assert figures["wait_max_s"] == pytest.approx(262_194, abs=1)


@pytest.mark.slow
def test_default_policy_beats_easy_without_starving_anybody():
    """On the first 3,000 jobs, so that it is quick: EASY has 111.81 there, and a longest wait of 245,869 s. The whole
    trace is in `python -m benchmarks replay`: 65.59 against EASY's 92.69."""
    figures = replayed("default", 3_000)
    assert figures["bounded_slowdown_mean"] == pytest.approx(77.88, rel=0.005)
    assert figures["flow_mean_s"] == pytest.approx(13_265.5, rel=0.002)
    assert figures["wait_max_s"] <= 1.10 * 245_869


@pytest.mark.slow
def test_start_estimates_cover_what_they_promise():
    """Jobs that wait, second half of 3,500 from the middle; `python -m benchmarks replay` has the whole trace."""
    nodes, levels, jobs = kth_sp2()
    replay = ForecastingReplay(nodes, levels, policy_queue("default"))
    replay.run(jobs[4_500:8_000])
    figures = accuracy(replay.forecasts)
    print(figures)
    assert replay.unknown == 0
    assert figures.forecasts > 600
    assert 0.86 <= figures.p90_covers <= 0.93
    assert 0.45 <= figures.p50_covers <= 0.55
    assert figures.pinball_seconds < figures.pinball_of_bound_seconds


def test_telling_starts_changes_no_decision():
    nodes, levels, jobs = kth_sp2()
    plain = Replay(nodes, levels, policy_queue("default"))
    plain.run(jobs[:300])
    telling = ForecastingReplay(nodes, levels, policy_queue("default"))
    telling.run(jobs[:300])
    assert telling.runs == plain.runs
    waited = {r.job.waiting.id for r in plain.runs if r.started_at > r.job.waiting.submitted_at}
    assert {forecast.job for forecast in telling.forecasts} == waited


SEED = 11


def gangs(count):
    """Multi-node gangs on 128 nodes in 16 leaves at 80 % load, seeded."""
    rng = random.Random(SEED)
    lines, clock = [HEADER], 0.0
    for number in range(count):
        nodes = rng.choice([1, 2, 2, 4, 4, 8, 8, 12, 16, 24])
        duration = rng.lognormvariate(7.0, 1.0)
        lines.append(
            f"{number},{clock:.3f},{duration:.3f},{nodes},8,1000,,,,u,,{duration * rng.uniform(1, 3):.3f}"
        )
        clock += rng.expovariate(1.0) * nodes * duration / (0.8 * 128)
    return lines


def fabric_rows(*, with_leaves):
    for i in range(128):
        place = f"leaf{i // 8:02d},spine{i // 32}" if with_leaves else ","
        yield f"n{i:03d},8,,,,{place}"


def on_fewest_leaves(placements, leaf_of):
    good = [len({leaf_of[n] for n in p}) <= math.ceil(len(p) / 8) for p in placements if len(p) > 1]
    return sum(good) / len(good)


def greedily_packed(runs, leaf_of):
    """The baseline: at each start take the leaf with the most free nodes, then the next."""
    free = set(leaf_of)
    events = sorted(
        [(run.started_at, 1, i) for i, run in enumerate(runs)]
        + [(run.ended_at, 0, i) for i, run in enumerate(runs)]
    )
    held: dict[int, list[str]] = {}
    for _, is_start, i in events:
        if not is_start:
            free.update(held[i])
            continue
        by_leaf: dict[str, list[str]] = {}
        for name in sorted(free):
            by_leaf.setdefault(leaf_of[name], []).append(name)
        ordered = sorted(by_leaf.values(), key=lambda names: (-len(names), names))
        held[i] = [name for names in ordered for name in names][: len(runs[i].nodes)]
        free.difference_update(held[i])
    return list(held.values())


def test_gangs_sit_on_the_fewest_leaves_more_often_than_by_greedy_packing():
    header = "node,gpus,gpu_model,cpu,mem_gib,leaf,spine"
    nodes, levels = read_nodes([header, *fabric_rows(with_leaves=True)])
    blind, no_levels = read_nodes([header, *fabric_rows(with_leaves=False)])
    leaf_of = {node.name: dict(node.domains)["leaf"] for node in nodes}
    lines = gangs(400)
    ours = Replay(nodes, levels, policy_queue("easy"))
    ours.run(read_jobs(lines, levels))
    plain = Replay(blind, no_levels, policy_queue("easy"))
    plain.run(read_jobs(lines, ()))
    share = on_fewest_leaves([run.nodes for run in ours.runs], leaf_of)
    baseline = on_fewest_leaves(greedily_packed(plain.runs, leaf_of), leaf_of)
    print(f"on the fewest leaves: {share:.3f}, greedy by leaf: {baseline:.3f} (seed {SEED})")
    assert share > baseline
    mine = report(ours.runs, [], nodes, 0.0)
    theirs = report(plain.runs, [], nodes, 0.0)
    assert mine["wait_mean_s"] <= theirs["wait_mean_s"] + 1e-6
    assert mine["multi_node_on_min_leaves"] == pytest.approx(share)
