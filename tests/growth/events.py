"""Writes the events of a recording as JSON text, fast enough for hundreds of thousands.

Times are in microseconds. Unlike :class:`tests.build.TraceBuilder` nothing is looked up: what encloses what is the
caller's business.
"""

from pathlib import Path

MAIN = 100
AUTOGRAD = 101
STREAM = 7

_LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
_RATES = (
    '"deviceProperties":[{"id":0,"name":"NVIDIA A100-SXM4-80GB","totalGlobalMem":85899345920,"computeMajor":8,'
    '"computeMinor":0,"numSms":108}]'
)


class Events:
    """Collects events; every method that adds something takes its start and end."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._correlation = 0
        self._external = 0
        self._sequence = 0

    def write(self, path: Path, *, rank: int | None = None, world_size: int = 1) -> Path:
        """Write the trace file."""
        group = f',"distributedInfo":{{"backend":"nccl","rank":{rank},"world_size":{world_size}}}' * (rank is not None)
        head = f'{{"schemaVersion":1,{_RATES}{group},"baseTimeNanoseconds":1700000000000000000,"traceEvents":[\n'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{head}{','.join(self._lines)}\n]}}\n", encoding="utf-8")
        return path

    # -- the CPU ---------------------------------------------------------------------------------------------------

    def step(self, number: int, start: float, end: float) -> None:
        """A step mark."""
        self.annotation(f"ProfilerStep#{number}", start, end)

    def annotation(self, name: str, start: float, end: float, thread: int = MAIN) -> None:
        """A named range."""
        self._timed("user_annotation", name, start, end, thread, "")

    def loader(self, start: float, end: float) -> None:
        """The training thread fetches a batch."""
        self.annotation(_LOADER, start, end)

    def op(
        self,
        name: str,
        start: float,
        end: float,
        *,
        thread: int = MAIN,
        dims: str = "",
        dtype: str = "float",
        sequence: int | None = None,
        forward_thread: int = 0,
        more: str = "",
    ) -> None:
        """An operator; ``dims`` is the JSON list of its shapes."""
        self._external += 1
        args = f'"External id":{self._external},"Record function id":{self._external}'
        if dims:
            types = ",".join([f'"{dtype}"'] * dims.count("[["[:1]))
            args += f',"Input Dims":{dims},"Input type":[{types}]'
        if sequence is not None:
            args += f',"Sequence number":{sequence},"Fwd thread id":{forward_thread}'
        self._timed("cpu_op", name, start, end, thread, args + more)

    def python(self, name: str, start: float, end: float, thread: int = MAIN) -> None:
        """A Python call."""
        self._timed("python_function", name, start, end, thread, "")

    def runtime(self, name: str, start: float, end: float, thread: int = MAIN) -> int:
        """A runtime call; returns its correlation id."""
        self._correlation += 1
        args = f'"cbid":211,"correlation":{self._correlation},"External id":{self._external}'
        self._timed("cuda_runtime", name, start, end, thread, args)
        return self._correlation

    def memory(self, at: float, byte_count: int, allocated: int, address: int | None = None) -> None:
        """The allocator gives or takes back memory of the device."""
        args = f'"Device Type":1,"Device Id":0,"Bytes":{byte_count},"Total Allocated":{allocated},"Total Reserved":9000'
        args += "" if address is None else f',"Addr":{address}'
        self._lines.append(
            f'{{"ph":"i","s":"t","cat":"cpu_instant_event","name":"[memory]","pid":100,"tid":100,"ts":{at},'
            f'"args":{{{args}}}}}'
        )

    def next_sequence(self) -> int:
        """A new sequence number, of an operator and its backward node."""
        self._sequence += 1
        return self._sequence

    # -- the GPU ---------------------------------------------------------------------------------------------------

    def launch(
        self,
        start: float,
        end: float,
        kernel: tuple[float, float] | None,
        *,
        name: str = "ampere_sgemm_128x64_tn",
        thread: int = MAIN,
        stream: int = STREAM,
        call: str = "cudaLaunchKernel",
        device: int = 0,
    ) -> int:
        """A launch call and its kernel; without ``kernel`` the record is lost. Returns the correlation id."""
        correlation = self.runtime(call, start, end, thread)
        if kernel is not None:
            self.kernel(name, *kernel, correlation=correlation, stream=stream, device=device)
        return correlation

    def kernel(
        self, name: str, start: float, end: float, *, correlation: int, stream: int = STREAM, device: int = 0
    ) -> None:
        """A kernel."""
        extra = '"blocks per SM":0.5,"est. achieved occupancy %":40'
        self._on_device("kernel", name, start, end, stream, correlation, extra, device=device)

    def copy(
        self, start: float, end: float, on_device: tuple[float, float], *, direction: str = "HtoD", thread: int = MAIN
    ) -> None:
        """A copy call between pageable memory and the device."""
        correlation = self.runtime("cudaMemcpyAsync", start, end, thread)
        name = "Memcpy HtoD (Pageable -> Device)" if direction == "HtoD" else "Memcpy DtoH (Device -> Pageable)"
        self._on_device("gpu_memcpy", name, *on_device, STREAM, correlation, '"bytes":1024')

    def memset(self, start: float, end: float, on_device: tuple[float, float]) -> None:
        """A memset call."""
        correlation = self.runtime("cudaMemsetAsync", start, end)
        self._on_device("gpu_memset", "Memset (Device)", *on_device, STREAM, correlation, '"bytes":1024')

    def _on_device(  # noqa: PLR0917  # the columns of an event
        self,
        category: str,
        name: str,
        start: float,
        end: float,
        stream: int,
        correlation: int,
        extra: str,
        *,
        device: int = 0,
    ) -> None:
        args = f'"device":{device},"context":1,"stream":{stream},"correlation":{correlation},{extra}'
        self._timed(category, name, start, end, stream, args, process=device)

    def _timed(  # noqa: PLR0917  # the columns of an event
        self, category: str, name: str, start: float, end: float, thread: int, args: str, process: int = MAIN
    ) -> None:
        self._lines.append(
            f'{{"ph":"X","cat":"{category}","name":"{name}","pid":{process},"tid":{thread},"ts":{start:.3f},'
            f'"dur":{end - start:.3f},"args":{{{args}}}}}\n'
        )
