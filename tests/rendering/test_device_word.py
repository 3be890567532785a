"""Users of an NPU read of NPUs."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.build_report import one_recording, three_recordings
from traceadvisor import load
from traceadvisor.rendering.content.report.document import report_document
from traceadvisor.rendering.document.blocks import Code, Prose
from traceadvisor.rendering.document.device_word import with_device_word
from traceadvisor.rendering.formats import FORMATS

DOCUMENT = report_document(one_recording())


@pytest.mark.parametrize(
    ("text", "device", "expected"),
    [
        ("The GPU waits", "NPU", "The NPU waits"),
        ("A GPU, a GPU and several GPUs", "NPU", "An NPU, an NPU and several NPUs"),
        ("a GPU", "GCU", "a GCU"),
        ("GPU busy", "device", "Device busy"),
        ("GPU001 of the iGPU", "NPU", "GPU001 of the iGPU"),
    ],
)
def test_the_word_for_a_device_is_replaced_with_its_article(text: str, device: str, expected: str) -> None:
    document = replace(DOCUMENT, headline=text, before=(Prose((text,)),))
    changed = with_device_word(document, device)
    assert changed.headline == expected
    assert changed.before == (Prose((expected,)),)


def test_code_stays_as_it_is() -> None:
    code = Code("print('GPU')")
    assert with_device_word(replace(DOCUMENT, before=(code,)), "NPU").before == (code,)


def test_reports_on_different_accelerators_keep_the_usual_word() -> None:
    report = three_recordings()
    first, *others = report.recordings
    mixed = replace(report, recordings=(replace(first, device_word="NPU"), *others))
    assert "NPU" not in str(report_document(mixed))
    alike = replace(report, recordings=tuple(replace(one, device_word="NPU") for one in report.recordings))
    assert "NPU" in str(report_document(alike))


@pytest.mark.nightly("traceadvisor/rendering")
@pytest.mark.parametrize("name", ["html", "md"])
def test_a_report_on_an_ascend_device_speaks_of_npus(name: str, shared_traces: Path) -> None:
    text = FORMATS[name].render(load(shared_traces / "ascend/two-ranks-level1")).decode()
    assert "NPU" in text
    assert not re.search(r"\bGPUs?\b", re.sub(r"<script.*?</script>|<style.*?</style>", "", text, flags=re.DOTALL))
