"""``mcpiac validate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from mcpiac.commands.context import Context
    from mcpiac.model.diagnostic import Diagnostic

EXAMPLES = ("mcpiac validate", "mcpiac validate stacks/demo.yaml --json")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("stacks", metavar="STACK", nargs="*", help="a stack's file or name (default: all)")
    parser.add_argument("--json", action="store_true", help="findings and result as JSON, one object a line")


def run(args: Namespace, context: Context) -> int:
    from mcpiac.model.diagnostic import Diagnosed
    from mcpiac.stack.load import read_stack
    from mcpiac.ui.words import count

    project = context.project()
    twins: tuple[Diagnostic, ...] = ()
    try:
        paths = project.select(args.stacks)
    except Diagnosed as fault:
        paths, twins = project.stack_files(), fault.diagnostics
        if args.stacks or not paths:
            raise
    readings = [read_stack(path, project.root) for path in paths]
    findings = [*twins, *(d for reading in readings for d in reading.diagnostics)]
    bad = any(d.severity == "error" for d in findings)
    servers = sum(len(r.stack.servers) for r in readings if r.stack is not None)
    if args.json:
        from mcpiac.ui import json_lines

        for each in findings:
            context.screen.result(json_lines.diagnostic(each))
        body = {"valid": not bad, "files": len(paths), "servers": servers}
        context.screen.result(json_lines.encode("validated", body))
        return 1 if bad else 0
    if bad:
        raise Diagnosed(*findings)
    if findings:
        from mcpiac.ui.diagnostics import render

        context.screen.tell(render(findings, context.screen.colour_err))
    context.screen.result(f"Valid: {count(len(paths), 'stack')}, {count(servers, 'server')}.")
    return 0
