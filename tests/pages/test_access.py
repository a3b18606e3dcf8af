"""Who sees which page; what belongs to others is in no list, count, choice or error text."""

import pytest

HIDDEN = "vision-secret-plan"
PAGES = [
    "/",
    "/jobs/",
    "/jobs/?view=waiting",
    "/jobs/?view=running",
    "/jobs/?view=finished",
    "/jobs/new/",
    "/map/demo/",
    "/nodes/",
    "/tokens/",
    "/tenants/",
    "/tenants/research/quotas/",
    "/tenants/research/queues/",
    "/tenants/research/queues/train/",
    "/tenants/research/members/",
    "/tenants/research/secrets/",
    "/plan/",
    "/plan/evictions/",
    "/clusters/",
    "/clusters/demo/",
    "/calendar/",
    "/alerts/",
    "/health/",
    "/health/quarantine/",
    "/health/rules/",
    "/flavors/",
    "/presets/",
    "/notices/",
]


@pytest.mark.parametrize("path", PAGES)
def test_page_sends_strangers_to_sign_in_and_back(client, scene, path):
    answer = client.get(path)
    assert answer.status_code == 302
    assert answer["Location"].startswith("/accounts/login/?next=/")


@pytest.mark.parametrize("path", PAGES)
def test_page_answers_a_submitter_without_a_word_of_other_tenants(sign_in, path):
    answer = sign_in("ravi").get(path)
    assert answer.status_code == 200
    text = answer.content.decode()
    for word in (HIDDEN, "segment-anything", "vision"):
        assert word not in text, word


@pytest.mark.parametrize("name", ["olivia", "vera", "admin", "ines", "sam"])
@pytest.mark.parametrize("path", [p for p in PAGES if "secrets" not in p])
def test_every_role_gets_every_page_that_it_may_see(sign_in, name, path):
    assert sign_in(name).get(path).status_code == 200


def test_secrets_are_named_only_to_those_who_may_use_them(sign_in):
    assert sign_in("vera").get("/tenants/research/secrets/").status_code == 403
    assert sign_in("sam").get("/tenants/research/secrets/").status_code == 403
    assert sign_in("ravi").get("/tenants/research/secrets/").status_code == 200


@pytest.mark.parametrize("part", ["", "live/", "log/", "explain/"])
def test_job_of_another_tenant_is_not_found(sign_in, scene, part):
    job = scene.jobs[HIDDEN]
    answer = sign_in("ravi").get(f"/jobs/{job.pk}/{part}")
    assert answer.status_code == 404
    assert HIDDEN not in answer.content.decode()


@pytest.mark.parametrize("action", ["cancel", "hold", "release"])
def test_job_of_another_tenant_cannot_be_acted_on(sign_in, scene, action):
    job = scene.jobs[HIDDEN]
    assert sign_in("ravi").post(f"/jobs/{job.pk}/{action}/").status_code == 404
    job.refresh_from_db()
    assert job.phase == "pending"


@pytest.mark.parametrize("page", ["quotas", "queues", "members", "secrets", "tokens"])
def test_pages_of_another_tenant_are_not_found(sign_in, page):
    assert sign_in("ravi").get(f"/tenants/vision/{page}/").status_code == 404


def test_filter_for_another_tenant_finds_nothing(sign_in):
    text = sign_in("ravi").get("/jobs/?tenant=vision").content.decode()
    assert "No job matches" in text


@pytest.mark.parametrize(
    ("name", "waiting", "active"), [("ravi", 5, 3), ("mei", 1, 1), ("sam", 6, 4)]
)
def test_counts_are_of_what_one_sees(sign_in, name, waiting, active):
    text = sign_in(name).get("/jobs/").content.decode()
    assert f'data-count="waiting">{waiting}<' in text
    assert f'data-count="active">{active}<' in text


def test_node_shows_hidden_jobs_as_numbers_only(sign_in):
    text = sign_in("ravi").get("/nodes/demo/gpu-00032/").content.decode()
    assert "8 GPUs are used by other tenants." in text
    assert "segment-anything" not in text
    assert "segment-anything" in sign_in("mei").get("/nodes/demo/gpu-00032/").content.decode()


def test_viewer_has_no_buttons_that_change(sign_in, scene):
    job = scene.jobs["pretrain-7b"]
    text = sign_in("vera").get(f"/jobs/{job.pk}/").content.decode()
    assert "data-cancel" not in text
    assert "data-cancel" in sign_in("ravi").get(f"/jobs/{job.pk}/").content.decode()
    answer = sign_in("vera").post(f"/jobs/{job.pk}/cancel/")
    assert answer.status_code == 403
    job.refresh_from_db()
    assert job.phase == "running"


def test_design_page_is_for_platform_admins(sign_in):
    assert sign_in("ravi").get("/design/").status_code == 404
    assert sign_in("admin").get("/design/").status_code == 200


def test_fragment_for_one_who_is_signed_out_sends_the_whole_page_to_sign_in(client, scene):
    answer = client.get("/jobs/", headers={"HX-Request": "true"})
    assert answer.status_code == 204
    assert answer["HX-Redirect"].startswith("/accounts/login/")


def test_refusal_of_a_fragment_is_a_toast_in_ascii(sign_in, scene):
    job = scene.jobs[HIDDEN]
    answer = sign_in("ravi").get(f"/jobs/{job.pk}/live/", headers={"HX-Request": "true"})
    assert answer.status_code == 404
    assert "muster:say" in answer["HX-Trigger"]
    assert answer["HX-Trigger"].isascii()
