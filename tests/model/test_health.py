import pytest

from traceadvisor.model.health import Health, HealthNote, HealthStatus

REMARK = HealthNote("unknown-categories", "Events of unknown categories were ignored.", degrades=False)
FAULT = HealthNote("truncated", "The file ends in the middle of the recording.")


@pytest.mark.parametrize(
    ("health", "status"),
    [
        (Health(events_read=10), HealthStatus.OK),
        (Health(events_read=10, notes=(REMARK,)), HealthStatus.OK),
        (Health(events_read=10, notes=(REMARK, FAULT)), HealthStatus.DEGRADED),
        (Health(events_read=10, events_dropped=1), HealthStatus.DEGRADED),
        (Health(events_read=10, events_repaired=1), HealthStatus.DEGRADED),
        (Health(events_dropped=3, notes=(FAULT,), unusable=True), HealthStatus.UNUSABLE),
    ],
)
def test_the_status_is_the_worst_that_any_note_or_count_implies(health: Health, status: HealthStatus) -> None:
    assert health.status is status
