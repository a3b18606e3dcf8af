"""The submit form: what is typed → what the contract reads; each error beside its field; no row behind."""

import re

import pytest
from django.core.exceptions import ValidationError

from queues.forms import texts
from queues.forms.submit import SubmitForm, field_of, initial_from_job
from queues.models import Job
from queues.selectors.answers import as_sent

GOOD = {"queue": "research/train", "image": "registry.example/train:1", "gpus": "64"}


def posted(**changes: str) -> dict[str, str]:
    return {**GOOD, "command": "torchrun train.py", "preemptible": "on", **changes}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", None), ("90m", 5400), ("24h", 86_400), ("1d 12h", 129_600), ("45", 45), ("1.5h", 5400)],
)
def test_span_reads_what_people_write(text, seconds):
    assert texts.read_span(text) == seconds


@pytest.mark.parametrize("text", ["soon", "24 hourss", "1x", "-5m", "h", "1h" * 30])
def test_span_refuses_the_rest(text):
    with pytest.raises(ValidationError):
        texts.read_span(text)


@pytest.mark.parametrize("seconds", [1, 59, 3600, 86_400, 129_600, 90_061])
def test_span_text_is_read_back(seconds):
    assert texts.read_span(texts.span_text(seconds)) == seconds


def test_command_is_split_as_a_shell_would_and_never_run():
    assert texts.read_command("sh -c 'echo $HOME; rm -rf /'") == [
        "sh",
        "-c",
        "echo $HOME; rm -rf /",
    ]
    with pytest.raises(ValidationError):
        texts.read_command("echo 'oops")


def test_pairs_name_the_line_that_is_wrong():
    assert texts.read_pairs("A=1\n\nB = x=y\n") == {"A": "1", "B": "x=y"}
    with pytest.raises(ValidationError, match="Line 2"):
        texts.read_pairs("A=1\nnonsense")
    with pytest.raises(ValidationError, match="twice"):
        texts.read_pairs("A=1\nA=2")


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("registry.example/team/Train_x:1.2", "train-x"),
        ("a@sha256:00", "a"),
        ("😀", "job"),
        ("x" * 90, "x" * 50),
    ],
)
def test_name_comes_from_the_image(image, name):
    assert texts.name_from_image(image) == name


@pytest.mark.parametrize(
    ("pointer", "field"),
    [
        ("/max_runtime_seconds", ("limit", "")),
        ("/topology/level", ("topology_level", "")),
        ("/checkpoint/interval_seconds", ("checkpoint_interval", "")),
        ("/env/LR", ("env", "LR")),
        ("/tenant", ("queue", "")),
        ("/depends_on/0/job", ("depends_on", "line 1")),
        ("/labels/kubernetes.io~1x", ("labels", "kubernetes.io/x")),
    ],
)
def test_pointer_finds_its_field(pointer, field):
    assert field_of(pointer) == field


@pytest.mark.parametrize(
    ("gpus", "shape"), [("1", (1, 1)), ("4", (1, 4)), ("8", (1, 8)), ("64", (8, 8)), ("16", (2, 8))]
)
def test_total_gpus_become_whole_nodes(scene, sign_in, gpus, shape):
    answer = sign_in("ravi").post("/jobs/new/", posted(gpus=gpus))
    job = Job.objects.get(pk=answer["Location"].strip("/").split("/")[-1])
    role = job.roles.get()
    assert (role.replicas, role.gpus_per_replica) == shape
    assert role.command == ["torchrun", "train.py"]
    assert job.name == "train"


def test_everything_under_more_reaches_the_job(scene, sign_in):
    answer = sign_in("ravi").post(
        "/jobs/new/",
        posted(
            name="full",
            limit="2d",
            gpu_model="NVIDIA-H100-80GB-HBM3",
            topology_level="leaf",
            topology_mode="required",
            tensor_parallel="8",
            min_replicas="4",
            env="LR=3e-4",
            volumes="data:/data:ro",
            annotations="sim.muster.dev/run-seconds=5",
            checkpoint_interval="30m",
            max_restarts="3",
            priority="low",
            external_id="ci-1",
            on_preemption="stop",
        ),
    )
    assert answer.status_code == 302, answer.content.decode()
    job = Job.objects.get(external_id="ci-1")
    sent = as_sent(job)
    assert sent["topology"]["mode"] == "required"
    assert sent["max_runtime_seconds"] == 172_800
    assert sent["tensor_parallel"] == 8
    assert sent["min_replicas"] == 4
    assert sent["priority"] == 100
    assert sent["checkpoint"]["interval_seconds"] == 1800
    assert sent["annotations"] == {"sim.muster.dev/run-seconds": "5"}
    assert sent["volumes"][0]["read_only"] is True


BAD = [
    ({"image": ""}, "image"),
    ({"image": "no spaces here"}, "image"),
    ({"gpus": "0"}, "gpus"),
    ({"gpus": "-8"}, "gpus"),
    ({"gpus": "60"}, "gpus"),
    ({"gpus": "many"}, "gpus"),
    ({"gpus_per_replica": "9", "replicas": "1"}, "gpus_per_replica"),
    ({"replicas": "3"}, "gpus"),
    ({"limit": "soon"}, "limit"),
    ({"limit": "9w"}, "limit"),
    ({"queue": "vision/train"}, "queue"),
    ({"queue": "research/nope"}, "queue"),
    ({"name": "😀"}, "name"),
    ({"command": "echo 'oops"}, "command"),
    ({"tensor_parallel": "16"}, "tensor_parallel"),
    ({"min_replicas": "9"}, "min_replicas"),
    ({"topology_level": "galaxy"}, "topology_level"),
    ({"gpu_model": "Voodoo-2"}, "gpu_model"),
    ({"env": "A=B\nnonsense"}, "env"),
    ({"env": "NVIDIA_VISIBLE_DEVICES=all"}, "env"),
    ({"env": "=x"}, "env"),
    ({"secret_env": "KEY=unknown"}, "secret_env"),
    ({"volumes": "data"}, "volumes"),
    ({"priority": "urgent"}, "priority"),
    ({"priority": "999"}, "priority"),
    ({"begin_at": "2001-01-01T00:00"}, "begin_at"),
    ({"depends_on": "job_unknown"}, "depends_on"),
    ({"memory_per_replica": "much"}, "memory_per_replica"),
    ({"cpu_per_replica": "100000"}, "cpu_per_replica"),
    ({"max_restarts": "-1"}, "max_restarts"),
    ({"annotations": "evil.example/x=1"}, "annotations"),
]


@pytest.mark.parametrize(("changes", "field"), BAD)
def test_wrong_input_is_told_at_its_field_and_leaves_no_row(scene, sign_in, changes, field):
    before = Job.objects.count()
    answer = sign_in("ravi").post("/jobs/new/", posted(**changes))
    assert answer.status_code == 200
    text = answer.content.decode()
    assert field in answer.context["form"].errors, answer.context["form"].errors
    place = text.index(f'id="field-{field}"')
    assert 'class="errs"' in text[place : place + 4000]
    assert f'aria-describedby="id_{field}' in text
    assert Job.objects.count() == before


def test_text_that_was_typed_is_escaped_when_it_comes_back(scene, sign_in):
    answer = sign_in("ravi").post("/jobs/new/", posted(image='"><script>alert(1)</script>'))
    assert "<script>alert(1)" not in answer.content.decode()


def test_clone_starts_from_the_job_and_makes_the_same_again(scene, sign_in):
    job = scene.jobs["pretrain-7b"]
    initial = initial_from_job(as_sent(job))
    client = sign_in("ravi")
    page = client.get(f"/jobs/new/?from={job.pk}").content.decode()
    assert 'value="registry.example/train:1"' in page
    sent = {key: str(value) for key, value in initial.items() if value not in (None, "", False)}
    answer = client.post("/jobs/new/", {**sent, "preemptible": "on"})
    assert answer.status_code == 302, answer.context["form"].errors
    twin = Job.objects.get(pk=answer["Location"].strip("/").split("/")[-1])
    assert as_sent(twin) == as_sent(job)


def test_clone_keeps_sizes_that_were_chosen_and_leaves_the_usual_ones_to_the_flavor(scene, sign_in):
    job, client = scene.jobs["pretrain-7b"], sign_in("ravi")
    usual = client.get(f"/jobs/new/?from={job.pk}").context["form"].initial
    assert (usual["cpu_per_replica"], usual["grace"]) == ("", "")
    job.roles.update(cpu_millis_per_replica=12_000)
    Job.objects.filter(pk=job.pk).update(grace_seconds=120)
    chosen = client.get(f"/jobs/new/?from={job.pk}").context["form"].initial
    assert (chosen["cpu_per_replica"], chosen["memory_per_replica"]) == ("12", "512Gi")
    assert chosen["grace"] == "2m"


def test_clone_of_another_tenants_job_is_not_found(scene, sign_in):
    job = scene.jobs["vision-secret-plan"]
    assert sign_in("ravi").get(f"/jobs/new/?from={job.pk}").status_code == 404


def test_viewer_is_told_that_no_queue_takes_their_jobs(scene, sign_in):
    text = sign_in("vera").get("/jobs/new/").content.decode()
    assert "No queue takes your jobs" in text
    assert sign_in("vera").post("/jobs/new/", posted()).status_code == 200
    assert not Job.objects.filter(user=scene.users["vera"]).exists()


def test_folds_say_the_default_and_where_it_came_from(scene, sign_in):
    text = sign_in("ravi").get("/jobs/new/").content.decode()
    assert "one leaf, preferred" in text
    assert "from cluster demo" in text
    assert "Left empty: 1d, at most 7d, from queue train." in text


def test_fold_with_an_error_is_open(scene, sign_in):
    text = sign_in("ravi").post("/jobs/new/", posted(tensor_parallel="16")).content.decode()
    fold = re.search(r'<details class="more"( open)?><summary><b>Placement</b>', text)
    assert fold is not None
    assert fold[1]


def test_verdict_lists_what_is_missing_and_stores_nothing(scene, sign_in):
    before = Job.objects.count()
    answer = sign_in("ravi").post("/jobs/new/verdict/", posted(image=""))
    text = answer.content.decode()
    assert "Not complete yet" in text
    assert 'href="#field-image"' in text
    assert Job.objects.count() == before


def test_verdict_without_a_planner_says_so(scene, sign_in, settings):
    settings.WHATIF_URL = "http://127.0.0.1:9"
    text = sign_in("ravi").post("/jobs/new/verdict/", posted()).content.decode()
    assert "No verdict now" in text


def test_form_without_an_offer_still_renders():
    form = SubmitForm(queues=[], offer=None)
    assert form.node_size == 8
