"""`uiat report RUN… [-o report.html]`: one page for some runs, from friend to enemy."""

from dataclasses import dataclass, field
from typing import Annotated

import torch
import tyro

from uiat.cli.options import REGISTRY, check_file, suggest
from uiat.errors import UserError
from uiat.fields import check_numbers
from uiat.io import write_output
from uiat.progress import PipeSafeConsole
from uiat.report.page.comparison import compare_runs
from uiat.report.page.network_summary import NetworkSummarizer, NetworkSummary, SummaryOptions, chosen_runs
from uiat.report.page.page import render
from uiat.report.page.runs import Run, read_runs


@dataclass(frozen=True)
class Report:
    """Write one HTML page for some runs: pictures from friend to enemy, accuracies, curves, settings."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Run folders, or folders that `uiat reproduce` wrote."""
    out: Annotated[str, tyro.conf.arg(aliases=["-o"])] = "report.html"
    """The file to write."""
    pictures: int = 4
    """How many runs are looked at, at most: one of each method first. 0 reads files alone, which takes seconds."""
    look: Annotated[SummaryOptions, tyro.conf.arg(name="")] = field(default_factory=SummaryOptions)


def main(args: list[str]) -> int:
    """Run the command."""
    with REGISTRY:
        options = tyro.cli(Report, args=args, prog="uiat report", description=Report.__doc__)
    if not options.runs:
        raise UserError("uiat report needs run folders: uiat report RUN RUN.")
    if options.pictures < 0:
        raise UserError(f"--pictures is {options.pictures}: give at least 0.")
    check_numbers(options.look, "--")
    check_file(options.out, text=True)
    comparison = compare_runs(read_runs(options.runs))
    runs = [row.run for row in comparison.rows]
    looks, places, easier = look_at(chosen_runs(runs, options.pictures), options.look)
    reason = "" if looks else _no_pictures(runs, options.pictures)
    page = render(comparison, looks, places, easier, options.look, reason=reason)
    write_output(options.out, page)
    size = len(page.encode()) / 1e6
    PipeSafeConsole(highlight=False).print(f"written: {options.out} ({size:.1f} MB)", markup=False, soft_wrap=True)
    suggest("done; next:", "uiat", "export", runs[0].folder.path)
    return 0


def look_at(runs: list[Run], options: SummaryOptions) -> tuple[list[NetworkSummary], torch.Tensor, torch.Tensor]:
    """Look at each run; all get frames of the same examples, which the first network's losses divide into halves."""
    looker, console = NetworkSummarizer(options), PipeSafeConsole(stderr=True, highlight=False)
    looks: list[NetworkSummary] = []
    places = easier = torch.empty(0, dtype=torch.long)
    for k, run in enumerate(runs):
        console.print(f"looking at {run.name} ({k + 1} of {len(runs)})", markup=False, soft_wrap=True)
        ready = looker.open(run)
        if not looks:
            places, easier = looker.choose(ready)
        looks.append(looker.look(run, ready, places))
    return looks, places, easier


def _no_pictures(runs: list[Run], most: int) -> str:
    if not most:
        return "Pictures were left out (--pictures 0)."
    what = "no epoch is finished yet" if len(runs) == 1 else "none of the runs has any"
    return f"There are no weights to look at: {what}."
