"""Findings as alerts at lines of code, in the formats that code hosts read: SARIF, GitHub and GitLab."""
