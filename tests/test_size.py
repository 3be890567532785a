"""The package may not grow unnoticed: see ``docs/decisions/0032-size.md``."""

from tests.shared import CHECKOUT

MOST_LINES, MOST_MODULES = 87_330, 602


def test_the_package_stays_within_its_size() -> None:
    modules = list((CHECKOUT / "traceadvisor").rglob("*.py"))
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in modules)
    assert lines <= MOST_LINES, "make room, or raise the limit and say in docs/decisions/0032-size.md what for"
    assert len(modules) <= MOST_MODULES
