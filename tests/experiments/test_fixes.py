from __future__ import annotations

from dataclasses import replace

import pytest

from tests.build_report import launch_finding, loader_finding, one_recording, ranked
from traceadvisor.errors import UsageError
from traceadvisor.experiments.fixes import changes, proposals, settings_of
from traceadvisor.experiments.planner import ALL_FIXES
from traceadvisor.model.findings import Estimate, Finding, Fix, Method, RuleMeta, Severity
from traceadvisor.model.report import RankedFinding, Report

MS = 1_000_000


@pytest.mark.parametrize(
    ("change", "settings"),
    [
        ("DataLoader(dataset, num_workers=4)  # instead of num_workers=1; keep", {"workers": 4}),
        (
            "DataLoader(dataset, num_workers=2, prefetch_factor=4, persistent_workers=True)",
            {"workers": 2, "prefetch": 4, "persistent_workers": True},
        ),
        ("loader = DataLoader(dataset, batch_size=64)  # now 32", {"batch_size": 64}),
        ("loader = DataLoader(dataset, pin_memory=True)\nbatch = batch.to(device)", {"pin_memory": True}),
        ("optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)", {"fused": True}),
        ("optimizer.zero_grad(set_to_none=True)", {"set_to_none": True}),
        ("model = model.to(memory_format=torch.channels_last)", {"channels_last": True}),
        ("torch.backends.cudnn.benchmark = True", {"cudnn_benchmark": True}),
        ('torch.set_float32_matmul_precision("high")', {"tf32": True}),
        ('with torch.autocast("cuda", dtype=torch.bfloat16):', {"amp": "bfloat16"}),
        ('with torch.autocast("cuda", dtype=torch.float16):', {"amp": "float16"}),
        ('model = torch.compile(model, mode="reduce-overhead")', {"compile": True}),
        ("losses.append(loss.detach())", {}),
        (None, {}),
    ],
)
def test_a_change_is_read_as_settings(change: str | None, settings: dict[str, object]) -> None:
    assert settings_of(change) == settings


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("DataLoader(d, num_workers=100000)", "proposes workers=100000; at most 256 are tried"),
        (f"DataLoader(d, num_workers={'9' * 6000})", "changes code of the script"),
    ],
)
def test_a_report_from_somebody_else_starts_no_thousands_of_workers(change: str, reason: str) -> None:
    found, others = proposals(_report(_finding("DATA002", change, _SIMULATED, loader_finding())))
    assert found == ()
    assert reason in others["DATA002"]


def _finding(rule: str, change: str | None, saving: Estimate, base: Finding) -> RankedFinding:
    recording = one_recording().recordings[0]
    finding = replace(base, rule=RuleMeta(rule, rule.lower(), "A title"), fix=Fix("Do it", change), saving=saving)
    return replace(ranked(finding, recording, Severity.HIGH), step_ns=100 * MS)


def _report(*findings: RankedFinding) -> Report:
    return replace(one_recording(), findings=findings)


_SIMULATED = Estimate(20 * MS, 30 * MS, 40 * MS, Method.REPLAY)
_LIMIT = Estimate(0, 0, 50 * MS, Method.BOUND, "it is not simulated")


def test_the_prediction_is_the_step_after_the_fix_over_the_step_before() -> None:
    report = _report(_finding("DATA002", "DataLoader(d, num_workers=2)", _SIMULATED, loader_finding()))
    (one,), others = proposals(report)
    assert (one.fix, one.settings) == ("DATA002", {"workers": 2})
    assert (one.low, one.expected, one.high) == pytest.approx((0.6, 0.7, 0.8))
    assert not others


def test_an_upper_limit_of_a_saving_has_no_expected_step() -> None:
    report = _report(_finding("GPU005", "torch.optim.SGD(p, fused=True)", _LIMIT, launch_finding()))
    (one,), _ = proposals(report)
    assert (one.low, one.expected, one.high) == (0.5, None, 1.0)


def test_several_fixes_are_also_measured_together() -> None:
    report = _report(
        _finding("DATA002", "DataLoader(d, num_workers=2)", _SIMULATED, loader_finding()),
        _finding("GPU005", "torch.optim.SGD(p, fused=True)", _LIMIT, launch_finding()),
        _finding("DATA003", "DataLoader(d, num_workers=2)", _SIMULATED, loader_finding()),
        _finding("MEM003", "losses.append(loss.detach())", _LIMIT, loader_finding()),
    )
    found, others = proposals(report)
    assert [one.fix for one in found] == ["DATA002", "GPU005", ALL_FIXES]
    assert found[-1].settings == {"workers": 2, "fused": True}
    assert "same settings as DATA002" in others["DATA003"]
    assert "changes code" in others["MEM003"]
    assert [change.name for change in changes(found)] == ["DATA002", "GPU005"]


def test_only_the_named_fixes_are_taken() -> None:
    report = _report(
        _finding("DATA002", "DataLoader(d, num_workers=2)", _SIMULATED, loader_finding()),
        _finding("GPU005", "torch.optim.SGD(p, fused=True)", _LIMIT, launch_finding()),
    )
    assert [one.fix for one in proposals(report, ["gpu005"])[0]] == ["GPU005"]
    with pytest.raises(UsageError, match=r"no finding GPU999\. Its findings: DATA002, GPU005"):
        proposals(report, ["GPU999"])
