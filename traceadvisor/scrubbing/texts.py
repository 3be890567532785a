"""Texts of a recording without paths, hosts, users and secrets; equal texts stay equal.

A folder, a host or a device id becomes a number of its own (``folder3``), the same at each place. So whatever a report
counts by path or by host stays the same. Names of public libraries stay, because they tell library code from the
user's code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import islice

from traceadvisor.analysis.operators.source_files import FRAME, LINE, is_library
from traceadvisor.text.cleaning import clean

MOST_NUMBERED = 100_000
"""Distinct folders, hosts and others that get numbers; all further ones share one."""

MOST_CACHED_CHARACTERS = 1 << 24
"""Characters of texts whose results are kept, for each kind of text."""

_SEPARATOR = re.compile(r"([/\\]+)")
_INSTALLED = re.compile(
    r"(?P<packages>(?:site|dist)-packages)(?=[/\\])|(?P<standard>[/\\]lib[/\\]python\d[\w.]{0,9})(?=[/\\])"
    r"|(?P<own>traceadvisor[/\\]recording)(?=[/\\])|(?P<inductor>[/\\]torchinductor)_\w+(?=[/\\])"
)
"""Start of an installation; the path before it tells about the machine."""

_DRIVE = re.compile(r"[A-Za-z]:(?=[/\\])")
_NO_FILE = re.compile(r"<(?:frozen [\w.]{1,100}|string|stdin|built-in|traceadvisor|torch_package_\d+)>|\.{3}")
_STAYING = frozenset({"", ".", "..", "...", "~"})
_SOURCE = re.compile(r".{1,100}\.(?:pyx?|pyi|so|cc?|cpp|cuh?|h|hpp)", re.DOTALL)

_URL = re.compile(r"\b[A-Za-z][\w+.-]{1,20}://[^\s\"'<>]{1,2000}")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,8}(?!\w)")
"""Also a user at a host without a domain."""

_MAIL_IN_NAME = re.compile(
    r"(?<![\w.+-])[\w.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}"
    r"|[A-Za-z0-9]{1,63}(?:-[A-Za-z0-9]{1,63}){1,8}|[a-z]{1,63}\d{1,9})(?!\w)"
)
"""Stricter than in sentences: `Dequeue@Conv2D` is an operator."""

_MAC = re.compile(r"(?<![\w:.-])[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}(?!\w|[:-]\w\w)")
_IP = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?!\w|\.\w)")
_IP_6 = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f:]{0,39}?(?:::|(?::[0-9A-Fa-f]{1,4}){3}))[0-9A-Fa-f:]{4,39}(?![\w:])")
_DOMAIN = re.compile(r"(?<![\w.-])(?:[A-Za-z0-9-]{1,63}\.){1,8}(?:internal|local|lan|corp|home|com|net|org|io)\b")
_IN_PATH = r"[^\s/\\:;,'\"()<>|\[\]{}*?]{1,255}"
_PATH = re.compile(
    rf"(?<![\w.)\]}}>/\\~])(?:(?:[A-Za-z]:(?=[/\\]))?(?:[/\\]{{1,9}}{_IN_PATH}){{2,100}}"
    rf"|(?:~|\.{{1,2}}|\$\w{{1,60}}|\${{\w{{1,60}}}}|%\w{{1,60}}%)(?:[/\\]{{1,9}}{_IN_PATH}){{1,100}})"
    r"|(?<![\w./\\~-])(?P<relative>[\w.-]{1,255}(?:[/\\]{1,9}[\w.-]{1,255}){1,100})"
)
_FOLDERS_IN_SENTENCE = 2
"""Separators of a relative path without a file at its end: `MB/s` is none."""

_FILE = re.compile(
    r".{1,255}\.(?:[ct]sv|7z|arrow|avi|bin|bmp|bz2|cfg|ckpt|conf|crt|dat|dll|feather|flac|gif|gz|h5|hdf5|html?|idx|ini"
    r"|ipynb|jpe?g|jsonl?|lmdb|log|lz4|mdb?|mkv|mov|mp[34]|np[yz]|ogg|onnx|parquet|pdf|pem|pickle|pkl|png|pt[ch]?|pth"
    r"|pyc|rar|safetensors|sh|sqlite3?|tar|tfrecords?|tgz|tiff?|toml|txt|wav|webm|webp|xml|xz|ya?ml|zarr|zip|zst)",
    re.IGNORECASE | re.DOTALL,
)
"""Names of files other than source code: `model/encoder/layer.attention` is the name of a range."""

_HOST_IN_NAME = re.compile(
    r"(?<![\w.-])(?:[A-Za-z0-9-]{1,63}\.){1,8}(?:internal|lan|corp|intranet|localdomain|local(?=:\d)|svc|cluster)\b"
    r"|(?<![\w.-])[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,7}\.(?:com|net|org|edu|gov|io|cloud|local)\b(?!\.?[\w(])"
)
"""Stricter than in sentences: a name may be `skimage.io` or `encoder.local`."""

_IP_6_IN_NAME = re.compile(
    r"(?<![\w:.])(?:(?:[23][0-9A-Fa-f]{3}|[fF][c-fC-F][0-9A-Fa-f]{2}|64:ff9b|::[fF]{4})(?::[0-9A-Fa-f]{0,4}){2,7}"
    r"|(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}|::1)(?:\.\d{1,3}){0,3}(?:%\w{1,20})?(?![\w:])"
)
"""Global, local and complete addresses only: `ac::add` is C++."""

_OPERATOR = re.compile(r"[a-z_0-9]{1,60}::[\w.]{1,200}")
_HOME = re.compile(
    r"(?:(?:^|[/\\\s\"'=:])(?:home\d{0,2}|homes|[Uu]sers)|torchinductor)(?:\\{0,2}/|\\{1,4}|_)([\w][\w.@-]{0,60})"
)
"""A home directory, also as JSON writes it; the group is the user."""

_NAMED_MEMBERS = re.compile(r"\"((?i:host(?:_?name)?|user(?:_?name)?))\" {0,4}: {0,4}\"([^\"\\]{1,255})\"")
_TRACE_OF_HOST = re.compile(r"(.{1,255}?)_\d{1,10}(?:\.\d{1,20}){0,2}\.pt\.trace\.json(?:\.gz)?")
_NO_NAMES = re.compile(
    "admin|all|base|bash|cpu|cuda|data|debug|default|demo|dev|files|first|gpu|home|hosts?|jovyan|last|local|localhost|main"
    "|mask|model|module|none|node|python|root|run|runner|runs|script|shared|step|tests?|torch|tmp|train|trainer|training"
    "|true|false|ubuntu|users?|val|validate|work|worker|torchrun|python3|accelerate|deepspeed",
    re.IGNORECASE,
)
"""Words that are no names of people and machines, or do not tell anybody apart."""

_TERMS = re.compile(
    r"(?:torch\.)?(?:b?float|fp|bf|tf|u?int|complex)\d{1,3}(?:-mixed|-true|x\d)?|float8_\w{1,10}|sm_?\d{2,3}\w?"
    r"|(?:cpu|cuda|hip|xpu|mps|npu|gpu|rank|stream|step|layer|block)[:_-]?\d{1,4}|cudnn|triton|inductor"
    r"|(?:lazy)?(?:conv|batchnorm|dropout|maxpool|avgpool)(?:transpose)?\d?d?|linear|layer_?norm|group_?norm|embedding"
    "|transformer|attention|softmax|(?:sparse|fused)?adam[wx]?|adadelta|adagrad|adafactor|rmsprop|forward|backward",
    re.IGNORECASE,
)
"""Arguments that are names of types, devices, layers and optimizers, too."""

_TELLING = re.compile(r"(?=.*[A-Za-z])(?=.*[\d.-]).{5,}", re.DOTALL)
"""Words that no name of the field holds by chance: they are replaced within others, and without regard to case."""

SHORTEST_ARGUMENT = 5
"""Characters of an argument that is replaced in other texts; a shorter one may stand there by chance."""

MOST_LEARNED = 1000
ADDRESS = "[address]"


class Numbers:
    """Numbers each distinct text of one kind: ``folder1``, ``folder2``."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._numbers: dict[bytes, int] = {}

    def __call__(self, text: str) -> str:
        """The replacement of a text, always the same."""
        key = blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
        if key not in self._numbers and len(self._numbers) >= MOST_NUMBERED:
            return self._kind
        return f"{self._kind}{self._numbers.setdefault(key, len(self._numbers) + 1)}"


class Texts:
    """Scrubs the texts of one recording, or of all recordings of a capture."""

    def __init__(self, own_code: frozenset[str] | None = None) -> None:
        """Start without any number.

        ``own_code``: first path parts of the user's modules; see :func:`is_library`.
        """
        self._own_code = own_code
        self._folder = Numbers("folder")
        self.host = Numbers("host")
        self.device = Numbers("device")
        self.user = Numbers("user")
        self.argument = Numbers("argument")
        self.key = Numbers("track")
        self.code = Numbers("code")
        self._known: dict[str, tuple[Numbers, str]] = {}
        self._telling = self._whole = _NOTHING
        self.file = _Kept(self._file)
        """A path with its folders numbered; what lies in public libraries stays, and so does the file's own name."""

        self.name = _Kept(self._name)
        """The name of an event: an operator, a kernel, a range or a Python function."""

        self.stack = _Kept(self._stack)
        """Frames, separated by semicolons."""

        self.line = _Kept(self._line)
        """File and line of a call: ``train.py:12``."""

    def learn(self, *hosts: str | None) -> None:
        """Remember hosts, with and without their domain; they are replaced in all texts."""
        self._learn(self.host, *(part for host in hosts if host for part in (host, host.partition(".")[0])))

    def learn_from(self, content: str) -> None:
        """Remember hosts and users that JSON names: in members of their own, and by their home directories."""
        self._learn(self.user, *dict.fromkeys(_HOME.findall(content)))
        for name, value in _NAMED_MEMBERS.findall(content):
            if name.lower().startswith("host"):
                self.learn(value)
            else:
                self._learn(self.user, value)

    def learn_arguments(self, words: Iterable[str]) -> None:
        """Remember the values of a command line."""
        for word in words:
            value = word.partition("=")[2] if word.startswith("-") else word
            is_number = value.replace(".", "").replace("e-", "").isdigit()
            if len(value) >= SHORTEST_ARGUMENT and not is_number and not _TERMS.fullmatch(value):
                self._learn(self.argument, value)

    def learn_trace(self, name: str) -> None:
        """Remember the host in the name that torch gives a trace."""
        if (found := _TRACE_OF_HOST.fullmatch(name)) and not found[1].startswith("rank"):
            self.learn(found[1])

    def _learn(self, numbers: Numbers, *words: str) -> None:
        new = {
            word.lower(): (numbers, word)
            for word in words
            if 2 < len(word) <= 255 and not _NO_NAMES.fullmatch(word) and word.lower() not in self._known
        }
        self._known |= dict(islice(new.items(), MOST_LEARNED - len(self._known)))
        if new:
            longest_first = sorted((word for _, word in self._known.values()), key=lambda word: (-len(word), word))
            telling = [word for word in longest_first if _TELLING.fullmatch(word) and not _SOURCE.fullmatch(word)]
            cases = (one for word in longest_first for one in dict.fromkeys((word, *_other_cases(word))))
            self._telling = _any_of(telling, "0-9", re.IGNORECASE)
            self._whole = _any_of(cases, "A-Za-z0-9")

    def _without_known(self, text: str) -> str:
        return self._whole.sub(self._numbered_word, self._telling.sub(self._numbered_word, text))

    def _numbered_word(self, match: re.Match[str]) -> str:
        numbers, word = self._known[match[0].lower()]
        return numbers(word)

    def free(self, text: str) -> str:
        """A sentence for people: notes and messages."""
        text = _URL.sub(ADDRESS, clean(self._without_known(text)))
        text = self._without_paths(text, _FOLDERS_IN_SENTENCE)
        for form in (_MAC, _MAIL, _IP, _IP_6, _DOMAIN):
            text = form.sub(ADDRESS, text)
        return text

    def own_part(self, part: str) -> str:
        """The first path part of a module of the user."""
        return clean(part) if _SOURCE.fullmatch(part) or self._is_public(f"{part}/") else self._folder(part)

    # -- texts of events -----------------------------------------------------------------------------------------

    def _name(self, name: str) -> str:
        if frame := FRAME.match(name):
            return f"{self.file(frame['file'])}({frame['line']}): {self._plain(frame['function'])}"
        return self._plain(name)

    def _line(self, place: str) -> str:
        file, _, line = place.rpartition(":")
        return f"{self.file(file)}:{line}" if LINE.fullmatch(line) else ""

    def _stack(self, stack: str) -> str:
        return ";".join(self.name(frame) for frame in stack.split(";"))

    def _plain(self, name: str) -> str:
        """A name, with secrets, paths and addresses replaced where it holds some."""
        name = clean(name)
        if _OPERATOR.fullmatch(name):
            return self._telling.sub(self._numbered_word, name)
        if "/" in name or "\\" in name:
            name = self._without_paths(_URL.sub(ADDRESS, name))
        if "@" in name:
            name = _MAIL_IN_NAME.sub(ADDRESS, name)
        if ":" in name:
            name = _IP_6_IN_NAME.sub(ADDRESS, name)
        if ":" in name or "-" in name:
            name = _MAC.sub(ADDRESS, name)
        if "." in name:
            name = _HOST_IN_NAME.sub(lambda match: self.host(match[0]), _IP.sub(ADDRESS, name))
        return self._without_known(name)

    def _without_paths(self, text: str, fewest_folders: float = math.inf) -> str:
        """A text without paths.

        ``fewest_folders``: a relative path with less of them stays, unless a file is at its end.
        """

        def replaced(match: re.Match[str]) -> str:
            *folders, _, last = _SEPARATOR.split(match[0])
            name = last.rstrip(".")  # a sentence may end behind it
            is_path = not match["relative"] or _SOURCE.fullmatch(name) or _FILE.fullmatch(name)
            return self._replaced(match) if is_path or len(folders[::2]) >= fewest_folders else match[0]

        return _PATH.sub(replaced, text)

    def _replaced(self, match: re.Match[str]) -> str:
        """A path within a text; its last part may be a folder, too."""
        folder, last = _SEPARATOR.split(match[0])[-2:]
        scrubbed = self.file(match[0])
        is_folder = not _SOURCE.fullmatch(last) and not self._is_public(match[0])
        return f"{scrubbed[: scrubbed.rindex(folder)]}{folder}{self._folder(last)}" if is_folder else scrubbed

    # -- paths ---------------------------------------------------------------------------------------------------

    def _file(self, file: str) -> str:
        if _NO_FILE.fullmatch(file):
            return file
        if file.startswith("<"):
            return f"<{self.code(file)}>"
        prefix, rest = "", file
        for installed in _INSTALLED.finditer(file):
            prefix = "/torchinductor_user" if installed["inductor"] else installed[0]
            rest = file[installed.end() :]
        if not prefix and (drive := _DRIVE.match(file)):
            rest = file[drive.end() :]
        if self._is_public(rest.lstrip("/\\") if prefix else rest):
            return clean(f"{prefix}{rest}")
        *folders, last = _SEPARATOR.split(rest)
        return f"{prefix}{''.join(map(self._numbered, folders))}{clean(last)}"

    def _numbered(self, part: str) -> str:
        return part if part in _STAYING or part[0] in "/\\" else self._folder(part)

    def _is_public(self, file: str) -> bool:
        """Whether a relative path lies in a library that everybody knows, by its name alone."""
        top, separator, _ = _SEPARATOR.split(file, maxsplit=1) if _SEPARATOR.search(file) else (file, "", "")
        if not separator or top in _STAYING or top.startswith(("<", "...")):
            return False
        if is_library(f"{top}/module.py", None):
            return True
        return top not in (self._own_code or ()) and not file.endswith(".pyx") and is_library(file, None)


_NOTHING = re.compile(r"(?!)")


def _any_of(words: Iterable[str], joining: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """Any of some words, but not between two characters that join."""
    found = "|".join(map(re.escape, words))
    edge = rf"(?:(?<![{joining}])|(?![{joining}]))"
    return re.compile(rf"{edge}(?:{found}){edge}", flags | re.ASCII) if found else _NOTHING


def _other_cases(word: str) -> tuple[str, ...]:
    """Spellings that are not those of a class, whose name `Adam` may be that of a host, too."""
    return tuple(one for one in (word.lower(), word.upper()) if one.lower() == word.lower())


class _Kept:
    """A function whose results are kept, up to a total length."""

    def __init__(self, function: Callable[[str], str]) -> None:
        self._function = function
        self._results: dict[str, str] = {}
        self._characters = 0

    def __call__(self, text: str) -> str:
        """The result for a text."""
        found = self._results.get(text)
        if found is None:
            found = self._function(text)
            self._characters += len(text) + len(found)
            if self._characters > MOST_CACHED_CHARACTERS:
                self._results.clear()
                self._characters = len(text) + len(found)
            self._results[text] = found
        return found
