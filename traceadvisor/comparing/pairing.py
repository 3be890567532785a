"""Pairs the recordings of both sides: by script or run, by rank, and by device."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TypeVar

from traceadvisor.frozen import frozen
from traceadvisor.model.command import script_name
from traceadvisor.model.comparison import Side, Unpaired
from traceadvisor.model.job import Job
from traceadvisor.model.report import OutcomeRow, RecordedFinding, Recording, Report

_RANK = re.compile(r"rank[-_]?(\d{1,18})\Z")

Place = tuple[str, int, int | None]
"""Run, cycle and rank of a recording."""

ROLES = ("latest rank", "median rank", "fastest rank")
"""Roles of the ranks that are judged of a large job, in its order."""

LaneKey = tuple[int | str, int]
"""Rank, role or worker, and the place of its device among those of the same file."""


@frozen(eq=False)
class Capture:
    """One run of a script: the recordings of all its ranks and cycles."""

    report: Report
    run: str
    command: tuple[str, ...]
    """Empty where the run was not captured by this tool."""

    is_one_of_several: bool
    """Whether its input holds runs with other names, too."""

    lanes: Mapping[LaneKey, tuple[Recording, ...]]
    """Recordings of each rank and device, in order of time; those that were cut short only where no other is."""

    findings: tuple[RecordedFinding, ...]
    """Those of its recordings, one per recording, in the order of the report."""

    outcomes: Mapping[str, Sequence[OutcomeRow]]
    """Outcomes of all checks of its recordings, by rule."""

    @property
    def recordings(self) -> Iterator[Recording]:
        """All recordings that count."""
        return (recording for lane in self.lanes.values() for recording in lane)

    @property
    def jobs(self) -> tuple[Job, ...]:
        """All ranks of the run, recorded at the same time."""
        return tuple(job for job in self.report.jobs if job.run == self.run or not self.is_one_of_several)

    @property
    def script(self) -> str | None:
        """File name of the script, or the module that was run; None if unknown."""
        return script_name(self.command)


@frozen(eq=False)
class PairedRun:
    """The captures of one script or run in both sides, with at least one rank in common."""

    name: str
    base: tuple[Capture, ...]
    head: tuple[Capture, ...]
    lanes: tuple[LaneKey, ...]
    """Ranks and devices that both sides have, in order."""


def captures_of(reports: Iterable[Report]) -> tuple[Capture, ...]:
    """The captures in some reports. Recordings of one folder and run are one capture, whatever their times.

    A log directory may hold recordings of several runs with the same worker name. They count as one capture, because
    too few captures make a verdict less certain, and too many make it wrong.
    """
    found = []
    for report in reports:
        by_run: defaultdict[tuple[str, str], list[Recording]] = defaultdict(list)
        for recording in report.recordings:
            folder = str(recording.path.parent) if recording.run else str(recording.path)
            by_run[recording.run, folder].append(recording)
        several = len({run for run, _ in by_run}) > 1
        roles = _roles(report)
        lanes = {key: _lanes(recordings, roles) for key, recordings in by_run.items()}
        of_run = {one.id: key for key, by_lane in lanes.items() for lane in by_lane.values() for one in lane}
        findings = _by_run((case for row in report.findings for case in row.by_recording or (row,)), of_run)
        outcomes = _by_run(report.outcomes, of_run)
        for key, recordings in by_run.items():
            command = next((one.captured.command for one in recordings if one.captured), ())
            name = key[0] or PurePath(key[1]).name
            by_rule: defaultdict[str, list[OutcomeRow]] = defaultdict(list)
            for row in outcomes[key]:
                by_rule[row.rule_id].append(row)
            found.append(Capture(report, name, command, several, lanes[key], tuple(findings[key]), by_rule))
    return tuple(found)


Row = TypeVar("Row", RecordedFinding, OutcomeRow)
RunKey = tuple[str, str]


def _by_run(rows: Iterable[Row], of_run: Mapping[str, RunKey]) -> defaultdict[RunKey, list[Row]]:
    """The rows by the run of their recordings; a row about several runs counts for each."""
    found: defaultdict[RunKey, list[Row]] = defaultdict(list)
    for row in rows:
        for key in dict.fromkeys(of_run[one] for one in row.recording_ids or of_run if one in of_run):
            found[key].append(row)
    return found


def distinct(captures: Iterable[Capture], known: Iterable[Capture] = ()) -> tuple[Capture, ...]:
    """The captures without repetitions, and without those already known: a copy says nothing about the spread."""
    seen = {_identity(capture) for capture in known}
    kept = []
    for capture in captures:
        if (identity := _identity(capture)) not in seen:
            seen.add(identity)
            kept.append(capture)
    return tuple(kept)


def _identity(capture: Capture) -> tuple[object, ...]:
    """Identity of a capture, which its copies share, wherever they are; two captures never agree in all of it."""
    return (
        capture.command,
        *(
            (key, one.path.name, one.span, one.recorded_wall_ns, one.step_ns, one.undisturbed_median_step_ns)
            for key, lane in capture.lanes.items()
            for one in lane
        ),
    )


def pair(base: Sequence[Capture], head: Sequence[Capture]) -> tuple[tuple[PairedRun, ...], tuple[Unpaired, ...]]:
    """The runs that both sides have, and every recording without a partner."""
    by_base, by_head = _by_key(base, head), _by_key(head, base)
    keys = [(key, key) for key in by_base if key in by_head]
    rest_base = [key for key in by_base if key not in by_head]
    rest_head = [key for key in by_head if key not in by_base]
    if len(rest_base) == len(rest_head) == 1:
        keys.append((rest_base[0], rest_head[0]))
        rest_base, rest_head = [], []
    paired: list[PairedRun] = []
    unpaired: list[Unpaired] = []
    for base_key, head_key in keys:
        run, lonely = _pair_lanes(_name(by_base[base_key], by_head[head_key]), by_base[base_key], by_head[head_key])
        paired += [run] if run.lanes else []
        unpaired += lonely
    for side, rest, by_key in ((Side.BASE, rest_base, by_base), (Side.HEAD, rest_head, by_head)):
        unpaired += [
            Unpaired(side, recording.id, "the other side has no such run or script")
            for key in rest
            for capture in by_key[key]
            for recording in capture.recordings
        ]
    return tuple(paired), tuple(unpaired)


def _by_key(captures: Sequence[Capture], others: Sequence[Capture]) -> dict[tuple[str, ...], list[Capture]]:
    """The captures by what tells runs apart: the script, and its arguments where both sides have several in common."""
    in_both = {capture.command for capture in captures} & {capture.command for capture in others}
    commands: defaultdict[str | None, set[tuple[str, ...]]] = defaultdict(set)
    for capture in (*captures, *others):
        commands[capture.script].add(capture.command)
    by_key: defaultdict[tuple[str, ...], list[Capture]] = defaultdict(list)
    for capture in captures:
        if not capture.command:
            by_key[("run", capture.run if capture.is_one_of_several else "")].append(capture)
        elif capture.command in in_both and len(commands[capture.script]) > 1:
            by_key[("command", *capture.command)].append(capture)
        else:
            by_key[("script", capture.script or "")].append(capture)
    return dict(by_key)


def _name(base: Sequence[Capture], head: Sequence[Capture]) -> str:
    """The command or script of both, else the name of their run, or both names."""
    commands = {" ".join(capture.command) for capture in (*base, *head)}
    if len(commands) == 1 and (command := commands.pop()):
        return command
    scripts = [side[0].script for side in (base, head)]
    if scripts[0] and scripts[0] == scripts[1]:
        return scripts[0]
    return " and ".join(dict.fromkeys(side[0].script or side[0].run for side in (base, head)))


def _roles(report: Report) -> Mapping[Place, str]:
    """The roles of the ranks that were judged of jobs of which not all were: other ranks may have them next time."""
    judged = {_place(one) for one in report.recordings}
    return {
        (job.run, job.cycle, rank): role
        for job in report.jobs
        if any((job.run, job.cycle, row.rank) not in judged for row in job.ranks)
        for rank, role in zip(job.in_full, ROLES, strict=False)
    }


def _place(recording: Recording) -> Place:
    return recording.run, recording.cycle, recording.distributed.rank if recording.distributed else None


def _lanes(recordings: Iterable[Recording], roles: Mapping[Place, str]) -> dict[LaneKey, tuple[Recording, ...]]:
    recordings = list(recordings)
    workers = {recording.worker for recording in recordings}
    devices: defaultdict[tuple[str, str], list[Recording]] = defaultdict(list)
    for recording in recordings:
        devices[recording.worker, str(recording.path) + recording.span].append(recording)
    lanes: defaultdict[LaneKey, list[Recording]] = defaultdict(list)
    for (worker, _), of_file in devices.items():
        for place, recording in enumerate(of_file):
            known = roles.get(_place(recording))
            lanes[known or _rank(recording, worker, alone=len(workers) == 1), place].append(recording)
    return {key: _whole(lane) for key, lane in lanes.items()}


def _rank(recording: Recording, worker: str, *, alone: bool) -> int | str:
    """The rank, as the recording or the worker's name tells it; 0 for the only worker, else the worker's name."""
    if recording.distributed is not None and recording.distributed.rank is not None:
        return recording.distributed.rank
    named = _RANK.search(worker)
    return int(named[1]) if named else 0 if alone else worker


def _whole(lane: Sequence[Recording]) -> tuple[Recording, ...]:
    """The recordings with steps and not cut short, as far as there are any."""
    timed = tuple(one for one in lane if one.step_ns is not None)
    return tuple(one for one in timed if not one.is_cut_short) or timed or tuple(lane)


def _pair_lanes(name: str, base: Sequence[Capture], head: Sequence[Capture]) -> tuple[PairedRun, list[Unpaired]]:
    keys = [dict.fromkeys(key for capture in side for key in capture.lanes) for side in (base, head)]
    if len(keys[0]) == len(keys[1]) == 1 and keys[0] != keys[1]:  # single ranks are compared whatever their numbers
        (key,) = keys[0]
        head = [replace(capture, lanes={key: next(iter(capture.lanes.values()))}) for capture in head]
        keys[1] = keys[0]
    common = dict.fromkeys(
        sorted((key for key in keys[0] if key in keys[1]), key=lambda key: (isinstance(key[0], str), key))
    )
    lonely = [
        Unpaired(side, recording.id, f"the other side has no {lane_name(key)}")
        for side, captures in ((Side.BASE, base), (Side.HEAD, head))
        for capture in captures
        for key, lane in capture.lanes.items()
        if key not in common
        for recording in lane
    ]
    return PairedRun(name, tuple(base), tuple(head), tuple(common)), lonely


def lane_name(key: LaneKey) -> str:
    """``rank 0``, ``rank 0, GPU 1`` or the worker's name."""
    rank, device = key
    named = f"rank {rank}" if isinstance(rank, int) else rank
    return f"{named}, GPU {device}" if device else named
