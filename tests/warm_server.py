"""Loads torch once, and forks a process of Python for each request; see :mod:`tests.warm`."""

import builtins
import gc
import json
import os
import runpy
import selectors
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TypedDict

LOADED = ("torch", "torch._dynamo", "torch.distributed", "torch.profiler", "torch.utils.data")

PATIENCE_S = 5
"""Longest time that this process outlives the tests."""


class Request(TypedDict):
    """A process of Python; its standard streams come as descriptors beside it."""

    arguments: list[str]
    """``-m``, a module and its arguments; or a script and its arguments."""

    cwd: str
    env: dict[str, str]


class _Loaded(MetaPathFinder):
    """Finds packages that were loaded before, as if they were not."""

    def __init__(self) -> None:
        before = set(sys.modules)
        for name in LOADED:
            __import__(name)
        known = sys.stdlib_module_names | {"__mp_main__"}
        added = {name for name in set(sys.modules) - before if _package(name) not in known}
        self._modules = {name: sys.modules.pop(name) for name in added}
        self._specs = {name: module.__spec__ for name, module in self._modules.items()}
        self._is_busy = False

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # importlib's signature
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """The spec of a loaded module, with a loader that puts it back."""
        found = self._specs.get(fullname)
        if found is None:
            return None
        spec = ModuleSpec(fullname, _PutsBack(self, fullname), origin=found.origin)
        spec.submodule_search_locations = found.submodule_search_locations
        return spec

    def module(self, name: str) -> ModuleType:
        """The loaded module of this name."""
        return self._modules[name]

    def put_back(self, name: str) -> None:
        """Put back a module and then, as if it imported them, those of its package; torch imports all of them."""
        sys.modules[name] = self._modules[name]
        if self._is_busy:
            return
        self._is_busy = True
        self._modules[name].__spec__ = self._specs[name]  # the import has set another one
        wanted, finders = _package(name), sys.meta_path[: sys.meta_path.index(self) + 1]
        for each, module in self._modules.items():
            if wanted in ("torch", _package(each)) and each not in sys.modules:
                spec = next(filter(None, (finder.find_spec(each, ()) for finder in finders)), None)
                if spec and spec.loader:
                    spec.loader.exec_module(module)
                else:  # torch.ops and others that no finder finds
                    sys.modules[each] = module
        self._is_busy = False


class _PutsBack(Loader):
    def __init__(self, loaded: _Loaded, name: str) -> None:
        self._loaded, self._name = loaded, name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._loaded.module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        self._loaded.put_back(self._name)


def _package(name: str) -> str:
    return name.partition(".")[0]


def _requests(path: str) -> socket.socket:
    """Fork a child for each connection, and write its exit code there; returns the connection in the child."""
    with socket.socket(socket.AF_UNIX) as server, selectors.DefaultSelector() as selector:
        server.bind(path)
        server.listen()
        selector.register(server, selectors.EVENT_READ)
        print("ready", flush=True)  # noqa: T201
        parent = os.getppid()
        while os.getppid() == parent:  # it may crash
            for key, _ in selector.select(PATIENCE_S):
                if key.fileobj is server:
                    connection, _ = server.accept()
                    pid = os.fork()
                    if not pid:
                        return connection
                    selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, connection))
                else:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    pid, connection = key.data
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    with connection, suppress(BrokenPipeError):  # the test waits no longer
                        connection.sendall(f"{code}\n".encode())
    raise SystemExit


def _become(connection: socket.socket) -> list[str]:
    """Give this process the streams, folder and variables of a request, and tell its id; returns the arguments."""
    with connection:
        length, streams, _, _ = socket.recv_fds(connection, 8, 3)
        with connection.makefile("rb") as content:
            request: Request = json.loads(content.read(int.from_bytes(length)))
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        connection.sendall(f"{os.getpid()}\n".encode())
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    del sys.modules["tests"], sys.modules["__mp_main__"]  # files of this checkout
    return request["arguments"]


def _run(first: str, *others: str) -> None:
    """Run a module or a script in the place of this one, as ``python`` does."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    sys.path[0] = os.getcwd()  # noqa: PTH109
    if first == "-m":
        sys.argv[:] = others
        runpy._run_module_as_main(others[0])  # type: ignore[attr-defined]
    else:
        sys.argv[:] = [first, *others]
        path = Path(first).absolute()
        main.__dict__.update(__file__=str(path), __builtins__=builtins)
        exec(compile(path.read_bytes(), path, "exec"), main.__dict__)  # noqa: S102


def _main(path: str) -> None:
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a thread would not be in the children
    sys.meta_path.insert(0, _Loaded())
    gc.freeze()  # a collection would copy all these objects in each child
    _run(*_become(_requests(path)))


if __name__ == "__main__":
    _main(sys.argv[1])
