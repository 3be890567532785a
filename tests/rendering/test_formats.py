from traceadvisor.rendering.formats import FORMATS


def test_the_formats_are_known_by_name() -> None:
    assert {name: format_.file_name for name, format_ in FORMATS.items()} == {
        "html": "report.html",
        "pdf": "report.pdf",
        "md": "report.md",
        "json": "report.json",
    }
