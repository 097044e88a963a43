"""Counts of faults over all tests and workers, printed at the end."""

from collections import Counter
from pathlib import Path

import pytest

from tests.support.kills import COUNTED, TIMES, Tally, Unbroken


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    return Tally(request.node)


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Unbroken:
    return Unbroken(tmp_path_factory.mktemp("unbroken"))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for group in terminalreporter.stats.values() for report in group]
    totals: Counter[str] = Counter()
    times: dict[str, list[float]] = {name: [] for name in TIMES}
    for report in reports:
        if getattr(report, "when", "") == "call":
            totals.update({name: 0 for name, _ in report.user_properties if name in COUNTED})
            for name, count in report.user_properties:
                totals[name] += count if name in COUNTED else 0
                times.get(name, []).append(count)
    if totals:
        terminalreporter.section("faults")
        for name, text in COUNTED.items():
            terminalreporter.write_line(f"{totals[name]:6d}  {text}")
        for name, seconds in times.items():
            if seconds:
                low, high = min(seconds), max(seconds)
                terminalreporter.write_line(
                    f"{TIMES[name]} {low:.1f} to {high:.1f} s after a kill ({len(seconds)} kills)"
                )
