"""Plant faults in rules, figures and the replay, and look which of them their own tests notice: ``make mutants``.

    python -m tests.mutants --sample 400 --seed 1                  # every threshold, and a sample of all else
    python -m tests.mutants --sample 0 traceadvisor/rules/h2d      # the thresholds of some modules
    python -m tests.mutants --all traceadvisor/analysis/steps/windows.py

Nothing is written to the checkout. The score counts a mutant as killed when a test fails or does not end.
"""

import argparse
import os
import random
import sys
from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a thread of a library does not survive a fork

from tests.mutants.mutations import Kind, Mutant, mutants_of
from tests.mutants.own_tests import OwnTests
from tests.mutants.running import HEAVY, LIMIT_FACTOR, LONGEST_INTACT_S, SHORTEST_LIMIT_S, Outcome, Ran, run_tests

PACKAGES = tuple(Path("traceadvisor", name) for name in ("rules", "analysis", "replay"))
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"


class Runner:
    """Runs mutants against their own tests, the quickest test module first; each is timed once without a fault."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._own, self._root, self._folder = OwnTests(root), root, folder
        self._takes_s: dict[tuple[Path, Path], float] = {}

    def run(self, mutant: Mutant) -> Ran:
        """Raises SystemExit where the tests fail without the fault."""
        original = (self._root / mutant.path).read_bytes()
        takes_s = {test: self._time(mutant.path, original, test) for test in self._own.of(mutant.path)}
        tests = sorted(takes_s, key=lambda test: takes_s[test])
        limit_s = max(SHORTEST_LIMIT_S, LIMIT_FACTOR * sum(takes_s.values()))
        return run_tests(mutant.path, mutant.source(original), tests, folder=self._folder, limit_s=limit_s)

    def _time(self, module: Path, original: bytes, test: Path) -> float:
        key = module.parent, test
        if key not in self._takes_s:
            intact = run_tests(module, original, [test], folder=self._folder, limit_s=LONGEST_INTACT_S)
            if intact.outcome.is_killed:
                sys.exit(f"{test} fails without a fault:\n{intact.output}")
            self._takes_s[key] = intact.duration_s
        return self._takes_s[key]


def chosen(paths: Iterable[Path], *, sample: int | None, seed: int, thresholds: bool = True) -> list[Mutant]:
    """All mutants of thresholds unless these are left out, and a sample of the others (all where it is None)."""
    modules = sorted({file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))})
    every = [mutant for module in modules for mutant in mutants_of(module, module.read_text(encoding="utf-8"))]
    others = [mutant for mutant in every if mutant.kind is not Kind.THRESHOLD]
    if sample is not None and sample < len(others):
        others = random.Random(seed).sample(others, sample)
    return sorted([mutant for mutant in every if thresholds and mutant.kind is Kind.THRESHOLD] + others)


def table(outcomes: Counter[tuple[Kind, Outcome]]) -> str:
    """The score by kind of fault, as Markdown."""
    lines = ["| fault | mutants | killed | survived | killed, % |", "|---|--:|--:|--:|--:|"]
    for name, kinds in (*((kind.value, [kind]) for kind in Kind), ("all", list(Kind))):
        killed, total = (
            sum(many for (kind, outcome), many in outcomes.items() if kind in kinds and wanted(outcome))
            for wanted in (lambda outcome: outcome.is_killed, lambda _: True)
        )
        if total:
            lines.append(f"| {name} | {total} | {killed} | {total - killed} | {100 * killed / total:.1f} |")
    return "\n".join(lines)


def main() -> int:
    """Print survivors as they are found, then the score."""
    given = _arguments()
    mutants = chosen(
        given.paths or PACKAGES,
        sample=None if given.all else given.sample,
        seed=given.seed,
        thresholds=given.thresholds,
    )
    for name in HEAVY:
        import_module(name)
    outcomes: Counter[tuple[Kind, Outcome]] = Counter()
    begin = monotonic()
    with TemporaryDirectory() as folder:
        runner = Runner(Path(), Path(folder))
        for number, mutant in enumerate(mutants, 1):
            outcome = runner.run(mutant).outcome
            outcomes[mutant.kind, outcome] += 1
            if not outcome.is_killed:
                diff = mutant.diff(mutant.path.read_bytes())
                print(f"{mutant.path}:{mutant.line}: {mutant.kind.value} {outcome.value}\n{diff}\n", flush=True)
            if number % 100 == 0:
                print(f"{number} of {len(mutants)}", file=sys.stderr, flush=True)
    about = f"Seed {given.seed}, {len(mutants)} mutants, {(monotonic() - begin) / 60:.0f} minutes."
    text = f"{about}\n\n{table(outcomes)}"
    print(text)
    if given.into:
        before, rest = given.into.read_text(encoding="utf-8").split(BEGIN)
        given.into.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")
    return 0


def _arguments() -> argparse.Namespace:
    summary = __doc__.splitlines()[0] if __doc__ else ""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=summary)
    parser.add_argument("paths", nargs="*", type=Path, help="modules or folders; rules, analysis and replay by default")
    parser.add_argument("--sample", type=int, default=400, help="how many mutants beside those of thresholds")
    parser.add_argument("--no-thresholds", dest="thresholds", action="store_false", help="the sample only")
    parser.add_argument("--all", action="store_true", help="every mutant instead of a sample")
    parser.add_argument("--seed", type=int, default=1, help="what the sample is drawn from")
    parser.add_argument("--into", type=Path, help="a document to write the score to, between its two marks")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
