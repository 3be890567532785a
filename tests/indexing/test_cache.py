"""What an entry of the cache must not do, however it came there."""

import gzip
import os
import sys
from pathlib import Path

import pytest

from tests.children import run
from traceadvisor.indexing import cache as caching
from traceadvisor.indexing.cache import Cache, cache_folder, key_of_content, signature_of

KEY = "a" * 64


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path)


def test_a_page_comes_back_with_its_row(cache: Cache) -> None:
    cache.put(KEY, b"<p>page", {"step": 1})
    cache.link("b" * 64, KEY)
    assert cache.key_of("b" * 64) == KEY
    assert (cache.page(KEY), cache.told(KEY)) == (b"<p>page", {"step": 1})


@pytest.mark.parametrize("content", [b"", b"no gzip", gzip.compress(b"page")[:-9], b"\x1f\x8b" + b"\0" * 40])
def test_a_damaged_page_counts_as_missing(cache: Cache, tmp_path: Path, content: bytes) -> None:
    (tmp_path / f"{KEY}.page").write_bytes(content)
    assert cache.page(KEY) is None


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"[" * 100_000, b"\xff", b'{"\xff": 1}'])
def test_damaged_words_on_a_page_count_as_missing(cache: Cache, tmp_path: Path, content: bytes) -> None:
    (tmp_path / f"{KEY}.told").write_bytes(content)
    assert cache.told(KEY) == {}


def test_a_page_that_unpacks_to_too_much_counts_as_missing(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caching, "LARGEST_ENTRY_BYTES", 1000)
    (tmp_path / f"{KEY}.page").write_bytes(gzip.compress(b"0" * 1001))
    assert cache.page(KEY) is None
    (tmp_path / f"{KEY}.page").write_bytes(os.urandom(1001))
    assert cache.page(KEY) is None


def test_links_and_pipes_are_not_read(cache: Cache, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(gzip.compress(b"secret"))
    (tmp_path / f"{KEY}.page").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / f"{KEY}.told")
    assert cache.page(KEY) is None
    assert cache.told(KEY) == {}


@pytest.mark.parametrize("key", ["../secret", "x" * 64, ""])
def test_an_entry_leads_to_keys_only(cache: Cache, tmp_path: Path, key: str) -> None:
    (tmp_path / f"{KEY}.key").write_text(key)
    assert cache.key_of(KEY) is None


def test_the_cache_is_a_folder_of_the_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "traceadvisor" / "reports"
    assert cache_folder() == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    assert cache_folder() != folder
    folder.chmod(0o700)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert cache_folder() != folder


def test_no_other_user_can_replace_the_cache_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "base"))
    folder = tmp_path / "base" / "traceadvisor" / "reports"
    assert cache_folder() == folder
    for above in (folder.parent, folder.parent.parent):
        above.chmod(0o777)
        assert cache_folder() != folder
        above.chmod(0o1777)
        assert cache_folder() == folder
        if os.geteuid() == 0:
            os.chown(above, 65_534, 65_534)
            assert cache_folder() != folder
            os.chown(above, 0, 0)
    (tmp_path / "link").symlink_to(tmp_path / "base")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "link"))
    assert cache_folder() == tmp_path / "link" / "traceadvisor" / "reports"
    if os.geteuid() == 0:
        os.chown(tmp_path / "link", 65_534, 65_534, follow_symlinks=False)
        assert not cache_folder().is_relative_to(tmp_path)


def test_a_temporary_cache_ends_with_its_process(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    (tmp_path / "tmp").mkdir()
    there = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp")}
    code = "from traceadvisor.indexing.cache import cache_folder; print(cache_folder())"
    done = run(sys.executable, "-c", code, env=there, check=True)
    assert Path(done.stdout.strip()).parent == tmp_path / "tmp"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_only_entries_give_way_to_others(tmp_path: Path) -> None:
    cache = Cache(tmp_path, most_bytes=5 * 4096)
    mine = tmp_path / "results.csv"
    mine.write_bytes(b"0" * 10 * 4096)
    os.utime(mine, ns=(0, 0))
    for key in ("a" * 64, "b" * 64, "c" * 64):
        cache.put(key, b"<p>page", {})
    assert (cache.page("a" * 64), cache.page("c" * 64)) == (None, b"<p>page")
    assert mine.exists()


def test_a_relative_cache_folder_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert cache_folder() == tmp_path / "home/.cache/traceadvisor/reports"
    assert not (tmp_path / "cache").exists()


def test_a_copy_of_a_file_has_another_signature_and_the_same_content(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"one")
    before = signature_of("", [file]), key_of_content("", [file])
    os.utime(file, ns=(0, 1))
    assert signature_of("", [file]) != before[0]
    assert key_of_content("", [file]) == before[1]
    assert key_of_content("another version", [file]) != before[1]
    file.write_bytes(b"two")
    assert key_of_content("", [file]) != before[1]
