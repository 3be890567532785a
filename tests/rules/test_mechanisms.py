"""Each rule has evidence of its mechanism, which ``conftest.py`` takes from recordings on which the rule fires."""

from tests.rules.mechanisms import MECHANISMS
from traceadvisor.judging.catalogue import all_rules
from traceadvisor.rules.base import RankRule, SnapshotRule


def test_every_rule_on_one_recording_has_evidence_of_its_mechanism() -> None:
    """Rules on several ranks and on memory snapshots read other inputs."""
    others = (RankRule.check, SnapshotRule.check)
    rules = {rule.meta.id for rule in all_rules() if type(rule).check not in others}
    assert set(MECHANISMS) == rules
