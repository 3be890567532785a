from pathlib import Path

import pytest

from traceadvisor.config import Settings, find_settings, nearest, passed_over, read_settings
from traceadvisor.errors import ConfigError


def _project(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "pyproject.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_key_is_read_with_its_type(tmp_path: Path) -> None:
    path = _project(
        tmp_path,
        """
        [tool.traceadvisor]
        select = ["DATA", "host-sync"]
        ignore = ["DATA003"]
        fail_on = ["high"]
        plugins = false
        gpu_price_per_hour = 2
        currency = "EUR"
        [tool.traceadvisor.rules.DATA001]
        min_share = 0.1
        """,
    )
    assert read_settings(path) == Settings(
        select=("DATA", "host-sync"),
        ignore=("DATA003",),
        fail_on=("high",),
        plugins=False,
        gpu_price_per_hour=2.0,
        currency="EUR",
        rules={"DATA001": {"min_share": 0.1}},
        file=path,
    )


def test_settings_are_searched_upward(tmp_path: Path) -> None:
    path = _project(tmp_path, "[tool.traceadvisor]\ncurrency = 'EUR'")
    below = tmp_path / "src" / "deep"
    below.mkdir(parents=True)
    assert find_settings(below) == Settings(currency="EUR", file=path)


def test_a_project_file_without_settings_is_skipped(tmp_path: Path) -> None:
    path = _project(tmp_path, "[tool.traceadvisor]\ncurrency = 'EUR'")
    _project(tmp_path / "package", "[project]\nname = 'package'")
    assert find_settings(tmp_path / "package").file == path


def test_only_the_nearest_settings_apply(tmp_path: Path) -> None:
    _project(tmp_path, "[tool.traceadvisor]\ncurrency = 'EUR'\nplugins = false")
    _project(tmp_path / "package", "[tool.traceadvisor]\ncurrency = 'CHF'")
    found = find_settings(tmp_path / "package")
    assert (found.currency, found.plugins) == ("CHF", True)


@pytest.mark.parametrize("reviewed", ["log", "log/trace.json", "log/deeper"])
def test_settings_beside_the_recordings_are_ignored(reviewed: str, tmp_path: Path) -> None:
    own = _project(tmp_path, "[tool.traceadvisor]\ncurrency = 'EUR'")
    others = _project(tmp_path / "log", "[tool.traceadvisor]\nignore = ['DATA']")
    (tmp_path / "log" / "deeper").mkdir()
    (tmp_path / "log" / "trace.json").touch()
    start = tmp_path / reviewed if (tmp_path / reviewed).is_dir() else tmp_path / "log"
    taken = own if reviewed != "log/deeper" else others
    assert find_settings(start, [tmp_path / reviewed]).file == taken


def test_without_settings_the_defaults_apply(tmp_path: Path) -> None:
    assert find_settings(tmp_path) == Settings()


def test_a_chosen_file_must_have_settings(tmp_path: Path) -> None:
    path = _project(tmp_path, "[project]\nname = 'a'")
    with pytest.raises(ConfigError, match=r"pyproject.toml: has no settings\. Expected a table \[tool.traceadvisor\]"):
        read_settings(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.toml: cannot be read"):
        read_settings(tmp_path / "none.toml")


@pytest.mark.parametrize("content", ["[tool.traceadvisor\n", "a = 'b\n", "\x00"])
def test_invalid_toml_is_an_error(content: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not valid TOML .*(line 1|end of document)"):
        read_settings(_project(tmp_path, content))


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a." * 30_000 + b"b = 1"])
def test_no_utf8_or_a_key_of_many_parts_is_an_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"is not valid TOML"):
        read_settings(path)


def test_an_unknown_key_is_an_error_that_suggests_the_nearest(tmp_path: Path) -> None:
    path = _project(tmp_path, "[tool.traceadvisor]\ngpu_price_pro_hour = 2")
    with pytest.raises(ConfigError) as caught:
        read_settings(path)
    assert str(caught.value).startswith(f"{path}: unknown key tool.traceadvisor.gpu_price_pro_hour. Expected one of ")
    assert str(caught.value).endswith("Did you mean 'gpu_price_per_hour'?")


def test_the_file_field_is_no_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown key tool.traceadvisor.file"):
        read_settings(_project(tmp_path, "[tool.traceadvisor]\nfile = 'a'"))


@pytest.mark.parametrize(
    ("line", "found", "expected"),
    [
        ("select = 'DATA'", "select is 'DATA'", "a list of strings"),
        ("select = [1]", r"select is \[1\]", "a list of strings"),
        ("plugins = 1", "plugins is 1", "true or false"),
        ("gpu_price_per_hour = '2'", "gpu_price_per_hour is '2'", "a number above 0 and below 1,000,000,000"),
        ("gpu_price_per_hour = 0", "gpu_price_per_hour is 0", "a number above 0"),
        ("gpu_price_per_hour = nan", "gpu_price_per_hour is nan", "a number above 0"),
        ("gpu_price_per_hour = true", "gpu_price_per_hour is true", "a number above 0"),
        ("currency = ''", "currency is ''", "a string of 1 to 8 characters"),
        ("rules = 3", "rules is 3", "one table per rule, with names and values"),
        ("rules.DATA001 = 3", "rules is {'DATA001': 3}", "one table per rule"),
        ("rules.DATA001.min_share = [1]", "rules is", "one table per rule"),
    ],
)
def test_a_value_of_the_wrong_type_or_out_of_range_is_an_error(
    line: str, found: str, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rf"tool\.traceadvisor\.{found}") as caught:
        read_settings(_project(tmp_path, f"[tool.traceadvisor]\n{line}"))
    assert expected in caught.value.expected


def test_settings_in_code_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"^settings: tool.traceadvisor.gpu_price_per_hour is -1"):
        Settings(gpu_price_per_hour=-1)


def test_the_settings_must_be_a_table(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tool.traceadvisor is 3. Expected a table"):
        read_settings(_project(tmp_path, "tool.traceadvisor = 3"))


def test_the_nearest_name_ignores_case() -> None:
    assert nearest("data01", ["DATA001", "IDLE001"]) == "DATA001"
    assert nearest("nothing like it", ["DATA001"]) is None


def test_a_huge_sparse_project_file_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = _project(tmp_path, "[tool.traceadvisor]\n")
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match="is too large for settings"):
        find_settings(tmp_path)
    assert passed_over(tmp_path, [tmp_path]) == path
