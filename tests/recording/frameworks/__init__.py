"""Captures of real frameworks, launchers and loops."""

import pytest

pytest.register_assert_rewrite("tests.recording.frameworks.comparing")
