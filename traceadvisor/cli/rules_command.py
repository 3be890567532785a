"""``traceadvisor rules``: what the tool looks for."""

from __future__ import annotations

import click

from traceadvisor.cli.exit_codes import errors_as_exit_codes
from traceadvisor.cli.rule_page import rule_page
from traceadvisor.engine import all_rules
from traceadvisor.errors import UsageError


@click.group("rules", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """List the rules, or explain one."""
    if context.invoked_subcommand is None:
        context.invoke(list_rules)


@command.command("list")
def list_rules() -> None:
    """List every rule: id, name, title."""
    metas = [rule.meta for rule in all_rules()]
    id_width, name_width = max(len(meta.id) for meta in metas), max(len(meta.name) for meta in metas)
    for meta in metas:
        click.echo(f"{meta.id:<{id_width}}  {meta.name:<{name_width}}  {meta.title}")


@command.command("explain")
@click.argument("rule_id", metavar="ID")
def explain(rule_id: str) -> None:
    """Print a rule's page: what it finds, why it costs time, how to fix it, when it may be wrong."""
    with errors_as_exit_codes():
        wanted = rule_id.lower()
        found = [rule for rule in all_rules() if wanted in {rule.meta.id.lower(), rule.meta.name}]
        if not found:
            known = ", ".join(rule.meta.id for rule in all_rules())
            raise UsageError(f"There is no rule {rule_id!r}. Known are: {known}.")
        click.echo(rule_page(found[0]))
