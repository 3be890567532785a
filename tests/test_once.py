import threading
from pathlib import Path

import pytest

from tests.once import Once


def test_the_first_that_asks_makes_it_and_the_others_wait(once: Once) -> None:
    made: list[Path] = []
    inside = threading.Event()

    def make(folder: Path) -> None:
        inside.wait(10)
        (folder / "a").write_text("1")
        made.append(folder)

    def ask() -> None:
        folder = once("test-of-once", make)
        assert (folder / "a").read_text() == "1"

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    inside.set()
    for thread in threads:
        thread.join(20)
    assert len(made) == 1


def test_what_could_not_be_made_is_made_again(once: Once) -> None:
    with pytest.raises(ZeroDivisionError):
        once("test-of-failures", lambda _: 1 / 0)
    assert (once("test-of-failures", lambda folder: (folder / "a").touch()) / "a").exists()
