"""The first screen: what was recorded, the contents, the bar of a finding, and one line of cautions."""

from dataclasses import replace
from html import escape

from tests.build_report import one_recording
from tests.rendering.reading import Page
from tests.sample_reports import sample
from traceadvisor.model.replay import ReplayFigures
from traceadvisor.model.report import FoldedBecause, FoldedFinding
from traceadvisor.model.saving import Estimate, of_the_fix
from traceadvisor.rendering.content.report.document import report_document
from traceadvisor.rendering.content.report.top import identity
from traceadvisor.rendering.document.blocks import Fold, RangeBar
from traceadvisor.rendering.writers.html import page
from traceadvisor.rendering.writers.terminal import lines


def test_the_identity_names_script_machine_torch_batch_size_and_date() -> None:
    line = identity(sample("loader-bound"))
    assert line == "train.py · 2 CPU cores · torch 2.13.0+cpu · batch size 32 · 2026-11-21"


def test_several_recordings_have_what_they_share() -> None:
    one = one_recording().recordings[0]
    assert one.device is not None
    other = replace(one, id="other", device=replace(one.device, name="another GPU"))
    assert identity(replace(one_recording(), recordings=(one, one))) == one.device.name
    assert identity(replace(one_recording(), recordings=(one, other))) is None


def test_the_contents_link_to_every_part_and_are_not_printed() -> None:
    document = report_document(sample("loader-bound"))
    shown, printed = Page(page(document)), Page(page(document, for_paper=True))
    targets = [link[1:] for link in shown.links if link.startswith("#")]
    assert {"findings", "run-1-loading"} <= set(targets)
    assert set(targets) <= set(shown.ids)
    assert (shown.elements["nav"], printed.elements["nav"]) == (1, 0)


def test_the_trace_of_the_first_recording_is_unfolded() -> None:
    document = report_document(sample("loader-bound"))
    folds = [block for section in document.sections for block in section.blocks if isinstance(block, Fold)]
    assert [fold.anchor for fold in folds if fold.is_open] == ["recording-1-trace"]


def test_the_bar_of_a_finding_is_the_step_after_its_fix() -> None:
    document = report_document(sample("loader-bound"))
    assert "Step with this fix alone: 186 -&gt; 116 ms" in page(document)
    assert "Impact: high</span>" in page(document)
    limited = page(report_document(sample("one-core")))
    assert "with this fix alone: 117 -&gt; at least 104" in limited


def test_cautions_are_one_line_that_unfolds() -> None:
    document = report_document(sample("one-core"))
    cautions = [block for block in document.top if isinstance(block, Fold)]
    assert [str(fold.title) for fold in cautions] == ["Caution: the machine was busy."]
    assert not any(isinstance(block, RangeBar) for block in document.top)


def test_the_title_of_the_chart_alone_says_that_recording_changed_the_steps() -> None:
    document = report_document(sample("one-core"))
    first = "".join(line.text for line in lines(document))
    assert "an undisturbed one takes 117.0 ms" in first
    assert "of the time of the rest" not in first
    text = page(document)
    assert "Typical step by category: shares of the recorded step (52.4 ms); an undisturbed one takes 117.0 ms" in text
    assert ">25%</text>" in text
    assert ">26.2 ms</text>" not in text  # half of the recorded step would stand beside the undisturbed one


def test_the_line_to_change_and_the_best_evidence_are_in_the_open_without_a_button_to_copy() -> None:
    shown = page(report_document(sample("loader-bound")))
    top, _, rest = shown.partition('<section id="findings"')
    assert '<pre class="quote"><code>num_workers=options.workers,</code></pre>' in top
    evidence = "data wait 76.0 ms per step; share of the step spent waiting 41.1%"
    assert f'<span class="lead">Evidence</span> {evidence}' in rest
    assert rest.index('<span class="lead">Evidence</span>') < rest.index("Evidence, origin and caveats")


def test_a_fix_whose_rank_the_load_decides_is_named_below_the_first_one() -> None:
    report = one_recording()
    first, other, _ = report.findings
    folded = FoldedFinding(other.finding.rule, FoldedBecause.LOAD_DECIDES, other.finding.fix, other.finding.saving)
    words = page(report_document(replace(report, findings=(replace(first, folded=(folded,)),))))
    assert f'<span class="lead">Or</span> {escape(other.finding.fix.summary)}' in words
    assert "on an idle machine, they may save more than this" in words
    same = replace(folded, because=FoldedBecause.SAME_TIME)
    assert '<span class="lead">Or</span>' not in page(
        report_document(replace(report, findings=(replace(first, folded=(same,)),)))
    )


def test_a_step_with_some_of_the_fixes_is_not_called_one_with_all() -> None:
    report = one_recording()
    limits = tuple(
        replace(row, finding=replace(row.finding, saving=limit), further_saving=limit)
        for row in report.findings[1:]
        for limit in [Estimate.bound(10_000_000, of_the_fix("nobody asked"))]
    )
    figures = ReplayFigures(4, 177.6e6, 0.0, -0.1, 0.0, None, None, joint_step_ns=100e6)
    recording = replace(report.recordings[0], replay=figures)
    some = replace(report, recordings=(recording,), findings=(report.findings[0], *limits))
    assert "Step with the simulated fix" in page(report_document(some))
    assert "Step with all fixes" not in page(report_document(some))
    one = replace(some, findings=some.findings[:1])
    assert "Step with the fix" in page(report_document(one))
