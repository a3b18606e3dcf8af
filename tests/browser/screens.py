"""Every screen of the product, and who looks at it. For test_accessibility and draw."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tests.e2e.stack import Stack


@dataclass(frozen=True, slots=True)
class Screen:
    """name: of its picture. path: may hold {job} (one that ended) and {node}. user: empty for a stranger."""

    name: str
    path: str
    user: str = "olivia"


SCREENS = (
    Screen("login", "/accounts/login/", ""),
    Screen("now", "/"),
    Screen("queue", "/jobs/"),
    Screen("queue-all", "/jobs/?view=all"),
    Screen("submit", "/jobs/new/", "ravi"),
    Screen("job", "/jobs/{job}/"),
    Screen("job-waiting", "/jobs/{waiting}/"),
    Screen("map", "/map/demo/"),
    Screen("map-zoom", "/map/demo/?zoom=spine-00"),
    Screen("nodes", "/nodes/"),
    Screen("node", "/nodes/demo/{node}/"),
    Screen("quotas", "/tenants/research/quotas/"),
    Screen("queues", "/tenants/research/queues/"),
    Screen("queue-settings", "/tenants/research/queues/train/"),
    Screen("members", "/tenants/research/members/"),
    Screen("secrets", "/tenants/research/secrets/"),
    Screen("tenant-tokens", "/tenants/research/tokens/"),
    Screen("own-tokens", "/tokens/"),
    Screen("tenants", "/tenants/", "admin"),
    Screen("plan", "/plan/"),
    Screen("evictions", "/plan/evictions/"),
    Screen("clusters", "/clusters/", "ines"),
    Screen("cluster", "/clusters/demo/", "ines"),
    Screen("levels", "/clusters/demo/levels/", "admin"),
    Screen("drain", "/clusters/demo/drain/", "ines"),
    Screen("calendar", "/calendar/", "ines"),
    Screen("window-new", "/calendar/new/", "ines"),
    Screen("alerts", "/alerts/", "ines"),
    Screen("health", "/health/?state=all", "ines"),
    Screen("quarantine", "/health/quarantine/", "ines"),
    Screen("rules", "/health/rules/", "admin"),
    Screen("rule", "/health/rules/temperature/", "admin"),
    Screen("policy", "/health/policy/demo/", "admin"),
    Screen("people", "/people/", "admin"),
    Screen("notices", "/notices/"),
    Screen("flavors", "/flavors/", "admin"),
    Screen("presets", "/presets/", "admin"),
    Screen("audit", "/audit/", "sam"),
    Screen("webhooks", "/tenants/research/webhooks/"),
    Screen("not-found", "/jobs/job_NOSUCH/"),
)
THEMES = ("light", "dark")


def things_to_show(demo: Stack) -> dict[str, str]:
    """A job that failed, one that waits, and a node: what the paths speak of."""
    api = demo.api("ravi")
    ended = api.submit(name="finetune-13b", replicas=4, run_seconds=1, exit_code=3, log_lines=30)
    api.until(ended["id"], "finished", 40)
    later = (datetime.now(UTC) + timedelta(days=30)).isoformat()
    waiting = api.submit(name="pretrain-70b", replicas=16, begin_at=later)
    node = api.job(ended["id"])["placement"][0]["node"]
    return {"job": ended["id"], "waiting": waiting["id"], "node": node}
