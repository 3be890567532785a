"""A comparison as JSON, with a schema of its own. The keys follow from the model, as those of a report do.

A difference is HEAD less BASE. Times are microseconds, rounded to the nanosecond; shares are 0..1, and changes of a
share may be negative. What is unknown is null.
"""

from __future__ import annotations

import msgspec

from traceadvisor.model.comparison import (
    ComparedRank,
    Comparison,
    FindingState,
    PredictionCheck,
    StepChange,
)
from traceadvisor.model.findings import Unit
from traceadvisor.model.replay import WhatIf
from traceadvisor.model.timeline import Timeline
from traceadvisor.results.document import RECORDS, UNIT_FORM
from traceadvisor.results.forms import Forms, Record
from traceadvisor.results.redaction import shortened
from traceadvisor.results.report_json import LONGEST_TEXT, plain_number
from traceadvisor.results.report_schema import schema, schema_text

SCHEMA = "traceadvisor.comparison/1"

_RECORDS = (
    Record(Comparison, constant={"schema": SCHEMA}),
    Record(ComparedRank, left_out="base head base_recordings head_recordings"),
    Record(StepChange, derived="change_share is_settled", order=("ratio change_share ratio_low",)),
    Record(FindingState, renamed={"saving": "saving_us_per_step"}, nullable="saving_share"),
    Record(PredictionCheck, renamed={"predicted": "predicted_step_us"}),
)

_FORMS = Forms((*RECORDS, *_RECORDS), {Unit: UNIT_FORM}, unwritten=(WhatIf, Timeline))
_COMPARISON = _FORMS.of(Comparison)


def render(comparison: Comparison) -> bytes:
    """The comparison as UTF-8 JSON. Its texts are clean already: they are those of redacted reports."""
    encoded = msgspec.json.encode(_COMPARISON.write(shortened(comparison, LONGEST_TEXT)), enc_hook=plain_number)
    return msgspec.json.format(encoded, indent=2) + b"\n"


def comparison_schema_text() -> str:
    """The schema as it is committed in ``docs/comparison.schema.json``."""
    return schema_text(schema(_COMPARISON, _FORMS, "TraceAdvisor comparison, version 1"))
