"""Blocks of steps in random order, on a clock that the steps move."""

from dataclasses import dataclass, field

import pytest

from benchmarks.gpu.alternating import Arm, Blocks, alternate, block_length
from benchmarks.gpu.budget import Budget, OutOfTimeError
from benchmarks.gpu.experiment import inverted
from traceadvisor.model.verdict import Verdict
from traceadvisor.statistics import compare


@dataclass
class Machine:
    """A step takes what its setting says, and 10 s more right after a switch."""

    now_s: float = 0.0
    step_s: float = 0.0
    switched: bool = False
    order: list[str] = field(default_factory=list)

    def clock_s(self) -> float:
        return self.now_s

    def arm(self, name: str, step_s: float) -> Arm:
        def enter() -> None:
            self.step_s, self.switched = step_s, True
            self.order.append(name)

        return Arm(name, enter)

    def step(self) -> None:
        self.now_s += self.step_s + (10.0 if self.switched else 0.0)
        self.switched = False


def run(machine: Machine, budget_s: float, discarded: int = 1, most_rounds: int = 8) -> list[dict[str, float]]:
    arms = [machine.arm("A", 1.0), machine.arm("A'", 1.0), machine.arm("B", 0.5)]
    budget = Budget(budget_s, machine.clock_s)
    came = alternate(
        arms,
        machine.step,
        lambda: None,
        Blocks(discarded, 4),
        budget,
        most_rounds=most_rounds,
        clock_s=machine.clock_s,
    )
    return came.rounds


def test_first_steps_after_a_switch_count_nowhere() -> None:
    assert run(Machine(), 1e6)[0] == {"A": 1.0, "A'": 1.0, "B": 0.5}


def test_each_round_holds_each_arm_once_and_orders_differ() -> None:
    machine = Machine()
    run(machine, 1e6)
    rounds = [tuple(machine.order[start : start + 3]) for start in range(0, len(machine.order), 3)]
    assert len(rounds) == 8
    assert all(sorted(order) == ["A", "A'", "B"] for order in rounds)
    assert len(set(rounds)) > 1


def test_after_five_rounds_another_begins_only_if_it_fits() -> None:
    round_s = 10 * 3 + 5 * (1.0 + 1.0 + 0.5)
    assert len(run(Machine(), 5 * round_s + 1)) == 5
    assert len(run(Machine(), 6 * round_s + 1)) == 6


def test_no_round_begins_once_the_time_is_over() -> None:
    assert len(run(Machine(), 50)) == 2
    assert run(Machine(), 0) == []


def test_the_whole_rounds_are_kept_where_the_time_ends_within_one() -> None:
    machine = Machine()

    def step() -> None:
        machine.step()
        if len(machine.order) == 8:
            raise OutOfTimeError

    arms = [machine.arm("A", 1.0), machine.arm("A'", 1.0), machine.arm("B", 0.5)]
    came = alternate(arms, step, lambda: None, Blocks(1, 4), Budget(1e6, machine.clock_s), clock_s=machine.clock_s)
    assert came.rounds == [{"A": 1.0, "A'": 1.0, "B": 0.5}] * 2
    assert came.stopped


def test_a_block_has_at_least_eight_steps_and_at_most_two_hundred() -> None:
    assert [block_length(step_s, 1.0, 5).measured for step_s in (0.5, 0.1, 0.001)] == [8, 10, 200]


def test_a_fault_that_was_planted_is_turned_around() -> None:
    found = inverted(compare([1.0] * 5, [1.0] * 5, [2.0] * 5))
    assert (found.ratio, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    assert found.verdict is Verdict.FASTER
