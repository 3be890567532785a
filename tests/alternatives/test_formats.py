import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import traceadvisor
from tests.alternatives.subjects import training
from tests.shared import CHECKOUT
from traceadvisor.cli import main
from traceadvisor.errors import UsageError
from traceadvisor.model.whatif import SCHEMA, Answer, Change, Fit, MemoryFit, Range, Relief, Remedy, Unknown
from traceadvisor.rendering.content.whatif.document import whatif_document
from traceadvisor.rendering.content.whatif.words import BASIS, LIMIT, REMEDY, UNKNOWN
from traceadvisor.rendering.formats import WHATIF_FORMATS
from traceadvisor.rendering.writers.terminal import lines
from traceadvisor.results.json_schemas import schema_text

SAMPLE = CHECKOUT / "sample_traces" / "gpu-known-work"
PRICES = {"T4": 0.5, "H100": 3.5}


@cache
def _answer() -> Answer:
    return traceadvisor.whatif(SAMPLE, gpus=["T4", "H100"], prices=PRICES, recorded_batches=[32])


def _text(answer: Answer) -> str:
    return "\n".join(line.text for line in lines(whatif_document(answer), 100))


def test_the_page_names_the_cheapest_and_its_interval_first() -> None:
    text = _text(_answer())
    cheapest = _answer().programs[0].cheapest
    assert cheapest is not None
    assert text.startswith(f"Cheapest: {_answer().programs[0].rows[cheapest].change.gpu}")
    assert " to " in text.splitlines()[0]


@pytest.mark.parametrize("name", ["html", "md", "json"])
def test_every_format_has_every_gpu_and_the_schema(name: str) -> None:
    content = WHATIF_FORMATS[name].render(_answer()).decode()
    assert SCHEMA in content
    assert all(gpu in content for gpu in ("NVIDIA T4", "NVIDIA H100 SXM5"))


def test_beside_other_gpus_the_page_says_which_one_a_faster_gpu_is_faster_than(tmp_path: Path) -> None:
    (sample,) = (CHECKOUT / "sample_traces" / "gpu-exhausted").glob("*.pt.trace.json.gz")
    alone = shutil.copy(sample, tmp_path)  # without the memory of its capture, into which nothing fits
    answer = traceadvisor.whatif(alone, gpus=["T4", "V100"], prices={"T4": 0.5, "V100": 3.5}, recorded_batches=[256])
    text = " ".join(_text(answer).split())
    assert "A GPU faster than the recorded NVIDIA H100 SXM5 would not help: the CPU sets the pace." in text
    assert "A faster GPU" not in text


def test_beside_other_batches_a_faster_gpu_helps_nothing_only_with_the_recorded_one(tmp_path: Path) -> None:
    (sample,) = (CHECKOUT / "sample_traces" / "gpu-exhausted").glob("*.pt.trace.json.gz")
    answer = traceadvisor.whatif(shutil.copy(sample, tmp_path), gpus=["H200"], batches=[512], recorded_batches=[256])
    text = " ".join(_text(answer).split())
    assert "With the recorded batch, a GPU faster than the recorded NVIDIA H100 SXM5 would not help" in text


@pytest.mark.nightly("traceadvisor/alternatives")
@pytest.mark.usefixtures("pango")
def test_the_pdf_is_one(tmp_path: Path) -> None:
    assert WHATIF_FORMATS["pdf"].render(_answer()).startswith(b"%PDF-")


def test_the_schema_is_committed(golden: Callable[[Path, str], None]) -> None:
    golden(CHECKOUT / "docs" / "whatif.schema.json", schema_text(Answer, SCHEMA))


def test_the_json_holds_every_interval() -> None:
    document = json.loads(WHATIF_FORMATS["json"].render(_answer()))
    step = document["programs"][0]["rows"][0]["step_ns"]
    assert step["low"] < step["expected"] < step["high"]
    assert msgspec.json.decode(WHATIF_FORMATS["json"].render(_answer())) == document


def test_every_value_has_words() -> None:
    from traceadvisor.model.whatif import Basis, StepLimit, Unknown  # noqa: PLC0415

    assert (set(BASIS), set(LIMIT), set(UNKNOWN)) == (set(Basis), set(StepLimit), set(Unknown))
    assert set(REMEDY) == set(Remedy)


def test_what_does_not_fit_says_what_would() -> None:
    answer = _answer()
    program = answer.programs[0]
    freed = Relief(Remedy.CHECKPOINTING, Range(12 << 30, 15 << 30, 22 << 30), Fit.PERHAPS)
    memory = MemoryFit(Range(20 << 30, 21 << 30, 22 << 30), 16 << 30, Fit.NO, largest_batch=24, reliefs=(freed,))
    fits = MemoryFit(Range(10 << 30, 11 << 30, 12 << 30), 16 << 30, Fit.YES, largest_batch=24)
    rows = tuple(replace(program.rows[0], memory=one) for one in (memory, fits))
    text = _text(replace(answer, programs=(replace(program, rows=rows),)))
    assert "does not fit" in text
    words = " ".join(text.split())
    assert "NVIDIA T4: batch 24 surely fits; accumulate 2 of them for at least 32 samples" in words
    assert "with activation checkpointing, it may fit (12.0 to 22.0 GiB)" in words


@pytest.mark.parametrize(
    ("first", "second", "begin"),
    [
        (Fit.NO, Fit.NO, "Nothing that was asked for fits"),
        (Fit.YES, Fit.NO, "NVIDIA T4: step"),
        (Fit.PERHAPS, Fit.NO, "NVIDIA T4, if it fits: step"),
        (Fit.YES, Fit.PERHAPS, "Fastest, if it fits: NVIDIA H100 SXM5"),
    ],
)
def test_the_headline_names_no_change_that_does_not_fit(first: Fit, second: Fit, begin: str) -> None:
    answer = _answer()
    program = replace(answer.programs[0], cheapest=None)
    memory = MemoryFit(Range(1, 2, 3), 2, Fit.YES)
    fits = zip(program.rows, (first, second), strict=True)
    rows = tuple(replace(row, memory=replace(memory, fit=fit)) for row, fit in fits)
    assert whatif_document(replace(answer, programs=(replace(program, rows=rows),))).headline.startswith(begin)


def test_without_a_batch_more_gpus_with_the_same_step_are_faster() -> None:
    program = replace(_answer().programs[0], cheapest=None, batch=None)
    rows = tuple(
        replace(row, change=Change(ranks=ranks), step_ns=Range(1e6, 2e6, 3e6), samples_per_s=None, memory=None)
        for row, ranks in zip(program.rows, (2, 8), strict=True)
    )
    document = whatif_document(replace(_answer(), programs=(replace(program, rows=rows),)))
    assert document.headline.startswith("Fastest: 8 GPUs")


def test_a_change_without_figures_may_fit_where_the_others_do_not() -> None:
    answer = _answer()
    program = replace(answer.programs[0], cheapest=None)
    memory = MemoryFit(Range(1, 2, 3), 2, Fit.NO)
    known, other = (replace(row, memory=memory) for row in program.rows)
    other = replace(other, step_ns=None, samples_per_s=None, memory=replace(memory, fit=Fit.YES))
    document = whatif_document(replace(answer, programs=(replace(program, rows=(known, other)),)))
    assert document.headline == "No change that fits has figures"


def test_changes_without_figures_for_one_reason_stand_in_one_line() -> None:
    program = _answer().programs[0]
    rows = tuple(replace(row, step_ns=None, unknown=Unknown.NO_STEP) for row in program.rows)
    text = " ".join(_text(replace(_answer(), programs=(replace(program, rows=rows, cheapest=None),))).split())
    assert f"NVIDIA T4; NVIDIA H100 SXM5. {UNKNOWN[Unknown.NO_STEP]}" in text


def test_names_of_recordings_cannot_become_markup() -> None:
    program = replace(_answer().programs[0], name="<script>alert(1)</script>", device="<b>")
    content = WHATIF_FORMATS["html"].render(replace(_answer(), programs=(program,))).decode()
    assert "<script>alert(1)" not in content


def _run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["whatif", *words])
    return done.exit_code, done.output


def test_the_command_writes_the_formats_that_are_asked_for(tmp_path: Path) -> None:
    code, output = _run(str(SAMPLE), "--gpu", "T4", "-o", str(tmp_path), "--format", "md,json")
    assert code == 0, output
    assert sorted(one.name for one in tmp_path.iterdir()) == ["whatif.json", "whatif.md"]
    assert "NVIDIA T4" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--gpu", "none"), "No published rates"),
        (("--price", "T4"), "NAME=PER_HOUR"),
        (("--price", "T4=-1"), "no price"),
        (("--gpu", "V100 32GB", "--price", "V100=3"), "Give one for the NVIDIA Tesla V100 SXM2 32 GB"),
        (("--batch", "many"), "no batch"),
        (("--batch", "0"), "no batch"),
        (("--ranks", "x"), "no whole number"),
        (("--cpu-speed", "fast"), "0.8"),
        (("--cpu-speed", "2-1"), "no speed"),
        (("--workers", "-1"), "number of workers"),
        (("--format", "docx"), "Unknown format"),
    ],
)
def test_wrong_words_are_refused_with_a_hint(words: tuple[str, ...], message: str) -> None:
    code, output = _run(str(SAMPLE), *words)
    assert code == 2
    assert message in " ".join(output.split())


@pytest.mark.parametrize("batch", [math.inf, math.nan, 32.5, "inf", None])
def test_a_batch_that_is_no_whole_number_is_refused(batch: Any) -> None:
    with pytest.raises(UsageError, match=f"{batch!r} is no batch. Expected a whole number from 1 to "):
        traceadvisor.whatif(SAMPLE, batches=[batch])


def test_an_unreadable_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.pt.trace.json").write_text("{}", encoding="utf-8")
    code, output = _run(str(tmp_path / "a.pt.trace.json"), "--gpu", "T4")
    assert code == 3, output


def test_two_recordings_of_one_program_measure_how_its_time_grows(tmp_path: Path) -> None:
    paths = []
    for us in (400, 1600):
        paths.append(tmp_path / f"{us}.pt.trace.json")
        paths[-1].write_bytes(training(us).text())
    answer = traceadvisor.whatif(*paths, batches=[48], recorded_batches=[16, 64])
    (small, large) = (program.rows[0].step_ns for program in answer.programs)
    assert small
    assert large
    assert small.expected == pytest.approx(1.4e6, rel=0.01)
    assert large.expected == pytest.approx(1.4e6, rel=0.01)
