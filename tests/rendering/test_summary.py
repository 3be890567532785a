import io
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from tests.build_report import (
    SHARES_NO_WORKERS,
    device_recording,
    hostile,
    nothing_readable,
    on_the_cpu,
    one_recording,
    three_recordings,
    v100,
)
from tests.rendering.captures import captured, captured_ranks
from tests.rendering.formatted import summary
from traceadvisor.model.breakdown import Category
from traceadvisor.model.findings import Clear, Unit
from traceadvisor.model.health import HealthNote
from traceadvisor.model.report import OutcomeRow, RecordingNote, Report
from traceadvisor.rendering.content.report.health import health_fold
from traceadvisor.rendering.document.blocks import Items
from traceadvisor.rendering.writers.lines import Style


def lines_of(report: Report) -> list[str]:
    return [line.text for line in summary(report)]


def test_the_summary_of_one_recording_is_short() -> None:
    assert lines_of(one_recording())[:21] == [
        "The device waits for the data loader: the fix saves about 51.0 ms of 177.6 ms per step "
        "(28.7%, range 21.5% to 33.4%).",
        "Tesla V100-SXM2-16GB",
        "1 check failed (GPU003): its finding may be missing.",
        "",
        "Median step 177.6 ms (mean 177.6 ms), GPU busy 55.5%",
        "",
        "Typical step by category",
        "  Kernels                      █████████████████ 55.5%",
        "  Data wait                    ██████████ 33.4%",
        "  Idle: CPU launching kernels  ██ 7.8%",
        "  Idle: other CPU work         █ 1.3%",
        "  CPU-to-GPU copy              █ 1.1%",
        "",
        "Findings, largest saving first",
        "1. The device waits for the data loader",
        "   Saves about 51.0 ms per step (28.7%), simulated; high confidence in the cause",
        "   Predicted step: 126.6 ms (118.3 ms to 139.4 ms), now 177.6 ms",
        "   Fix: Load batches in worker processes",
        "     DataLoader(..., num_workers=4, persistent_workers=True)",
        "   At: ~/src/train.py:41 in main, most of the time in scipy/ndimage/interpolation.py:7 (zoom), and "
        "~/src/data.py:118",
        "   Origin: aten::conv2d (50.0% of this finding's time); ~/src/train.py:41 (function main) > "
        "backward of ~/src/model.py:12 (function forward), in torch/nn/functional.py:300 (conv2d) (50.0%)",
    ]


def test_problems_of_the_input_come_before_the_findings() -> None:
    lines = lines_of(three_recordings())
    caution = lines.index(
        "Caution: Of 402,120 events, 3 were left out because they could not be read; "
        "1 were repaired because of broken JSON or impossible values."
    )
    assert caution < lines.index("Findings, largest saving first")


def test_damage_of_the_input_comes_first() -> None:
    report = one_recording()
    note = RecordingNote(HealthNote("truncated", "The file is cut off. Copy it again."), report.recordings[0].id)
    health = replace(report.health, notes=(note.note,))
    lines = lines_of(replace(report, health=health, health_notes=(note,)))
    assert lines[0] == "Damaged input: The file is cut off. Copy it again."


def test_the_first_line_ends_where_the_first_sentence_does() -> None:
    report = one_recording()
    health = replace(report.health, events_read=402_120, events_dropped=3, events_repaired=1)
    fold = health_fold(replace(report, health=health))
    assert fold is not None
    assert "could not be read. " in f"{fold.title} "


def test_damage_of_one_of_several_recordings_names_it() -> None:
    report = three_recordings()
    name = report.recordings[1].id
    note = RecordingNote(HealthNote("truncated", "The file is cut off. Copy it again."), name)
    fold = health_fold(replace(report, health_notes=(note,)))
    assert fold is not None
    assert str(fold.title).startswith(f"Damaged input: the file is cut off ({name}).")


def test_a_busy_machine_of_several_recordings_is_one_note() -> None:
    report = three_recordings()
    ids = [one.id for one in report.recordings[:2]]
    notes = tuple(
        RecordingNote(HealthNote("busy-machine", f"The machine was busy: {cores} cores.", degrades=False), name)
        for cores, name in zip((1.2, 1.3), ids, strict=True)
    )
    fold = health_fold(replace(report, health_notes=notes))
    assert fold is not None
    (items,) = (block for block in fold.blocks if isinstance(block, Items))
    assert [str(words[0]) for words in items.items if "busy" in str(words)] == ["The machine was busy: 1.2 cores. "]
    assert all(name in str(items.items) for name in ids)


def test_only_the_top_three_findings_are_shown() -> None:
    lines = lines_of(three_recordings())

    assert [line[:2] for line in lines if line[1:2] == "."] == ["1.", "2.", "3."]
    assert "And 1 more finding in the full report." in lines


def test_each_of_several_recordings_is_named() -> None:
    assert any(line.strip().startswith("gpt2-ddp: Step time: 222.4 ms") for line in lines_of(three_recordings()))


def test_the_step_time_of_a_capture_is_the_median_of_undisturbed_steps() -> None:
    assert (
        "Step 168.0 ms (median of 270 undisturbed steps, without the profiler), Samples/s 190, GPU busy 55.5%"
        in lines_of(captured())
    )


def test_a_mean_step_far_above_the_median_stands_beside_it_with_its_speed() -> None:
    report = captured()
    uneven = replace(report.recordings[0], undisturbed_mean_step_ns=4 * 168e6)
    shown = " ".join(lines_of(replace(report, recordings=(uneven,))))
    assert (
        "(median of 270 undisturbed steps, without the profiler; mean 672.0 ms), Samples/s 190 (47.6 on average)"
        in shown
    )


def test_a_rank_without_recorded_steps_has_a_step_time() -> None:
    (line,) = (line for line in lines_of(captured_ranks()) if line.strip().startswith("rank 1 "))
    assert line.split()[2:] == ["168.0", "ms", "(undisturbed)", "not", "measured", "not", "measured"]


def test_without_a_device_the_busy_share_is_not_measured() -> None:
    assert any("GPU busy not measured" in line for line in lines_of(on_the_cpu()))


def test_unknown_time_is_among_the_bars() -> None:
    report = one_recording()
    (first,) = report.recordings
    shares = dict.fromkeys(SHARES_NO_WORKERS, 0.0) | {Category.KERNEL: 0.3, Category.IDLE_UNKNOWN: 0.7}
    unsure = device_recording(first.id, shares, step_ms=100, device=v100())
    lines = lines_of(replace(report, recordings=(unsure,)))
    assert "Median step 100.0 ms (mean 100.0 ms), GPU busy 30.0% to 100.0%" in lines
    assert "  Unknown  █████████████████████ 70.0%" in lines


def test_an_unreadable_input_has_a_note() -> None:
    assert lines_of(nothing_readable())[0] == "Unusable recording: The file holds no events."


def test_no_escape_code_and_no_line_end_reaches_the_terminal() -> None:
    assert all(line.isprintable() for line in lines_of(hostile(three_recordings())))


def test_every_style_is_one_that_rich_knows() -> None:
    console = Console(file=io.StringIO())

    for style in Style:
        console.print(Text("x", style=style.value))


def test_checks_of_only_part_of_the_kernel_time_are_named_last() -> None:
    report = one_recording()
    rows = tuple(
        OutcomeRow(rule, (report.recordings[0].id,), Clear("a", 0, 1, Unit.SHARE, judged_share=share))
        for rule, share in (("GPU001", 0.62), ("GPU002", 1.0), ("GPU003", None), ("GPU006", 0.949))
    )
    lines = lines_of(replace(report, outcomes=rows))
    assert lines[-1] == "Passed, but on part of the kernel time only: GPU001 62.0%, GPU006 94.9%"
    assert "Passed" not in "".join(lines_of(report))


def test_a_code_change_is_shown_whole() -> None:
    report = one_recording()
    change = "\n".join(f"first_of_all_names_{number} = second_of_all_names_{number}" for number in range(9))
    first = report.findings[0]
    longer = replace(first, finding=replace(first.finding, fix=replace(first.finding.fix, change=change)))
    lines = lines_of(replace(report, findings=(longer, *report.findings[1:])))
    assert [line.strip() for line in lines if "of_all_names" in line] == change.splitlines()
