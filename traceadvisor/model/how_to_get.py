"""What a rule misses, and how to get it."""

from __future__ import annotations

from traceadvisor.model.findings import Input

HOW_TO_GET = {
    Input.STEPS: "No complete step was recorded: let the profiler's active window hold several steps.",
    Input.DEVICE: "No kernels were recorded: record with ProfilerActivity.CUDA on a machine with a GPU.",
    Input.LOADER: "No data loader events were recorded: let the profiled loop iterate over its DataLoader.",
    Input.LAUNCHES: "No launch calls were recorded: record with ProfilerActivity.CPU beside the device's.",
    Input.STACKS: "No call stacks were recorded: record with with_stack=True.",
    Input.DTYPES: "No operator input types were recorded: record with record_shapes=True.",
    Input.COLLECTIVES: "No collectives ran on the device: the process trains by itself, or exchanges on the host.",
    Input.SHAPES: "No operator input shapes were recorded: record with record_shapes=True.",
    Input.DEVICE_MODEL: "What the device is capable of is not known: it is not said, or none of those known.",
    Input.PEAK_RATES: "The device's peak rates are not known: it is not said which it is, or none of those known.",
    Input.SETTINGS: "The loader's settings are not known: record with `traceadvisor capture`.",
    Input.HOST_TELEMETRY: "The host was not sampled: record with `traceadvisor capture`.",
    Input.DEVICE_TELEMETRY: "The device was not sampled: record with `traceadvisor capture` where NVML works.",
    Input.DEVICE_MEMORY: "Device memory was not recorded: record with profile_memory=True or `traceadvisor capture`.",
}
