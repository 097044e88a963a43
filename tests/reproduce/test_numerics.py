"""`--precision`, `--compile` and `--batch-size` of `uiat reproduce`: changed keys, and where they are passed on."""

import json
import shlex
from pathlib import Path

import pytest

from tests.support.calls import call, refused
from tests.support.processes import ROOT
from tests.support.tiny import tiny_scale
from uiat.cli.reproduce_job import Reproduce, job_command, plan_job
from uiat.reproduce.cell import Cell, Store
from uiat.reproduce.experiments import EXPERIMENTS
from uiat.reproduce.measures import Attacked, Curve, Inverse, measure_key
from uiat.reproduce.scales import SCALES
from uiat.reproduce.table import benchmarks_of
from uiat.runs.published import readable_folder
from uiat.runs.run_folder import RunFolder

PUBLISHED = ROOT / "results" / "cpu"
GIVEN = ("--precision", "bf16", "--batch-size", "7")


def plan(*names: str, **options: object) -> tuple[Cell, ...]:
    return plan_job(Reproduce(names, **{"scale": "smoke", **options})).cells  # type: ignore[arg-type]


def test_keys_of_published_results_stay() -> None:
    """Runs, measurements and benchmarks in the folder are found under the names that their files have."""
    cells = plan("all", scale="cpu", seeds=5, out=str(PUBLISHED))
    runs = [RunFolder(readable_folder(file.with_suffix(""))) for file in (PUBLISHED / "runs").glob("*.json")]
    watch = SCALES["cpu"].watch
    assert len(runs) > 100
    for run in runs:
        assert run.path.name in {Cell(run.read_config(), watch=watched).name for watched in (None, watch)}
    measured = {file.stem for run in runs for file in run.path.glob("measures/*.json")}
    assert measured == measured & {measure_key(measure) for cell in cells for measure in cell.measures}
    assert sum(Store(cell, PUBLISHED).finished for cell in cells) > 100
    experiments = [build(SCALES["cpu"]) for build in EXPERIMENTS.values()]
    names = {
        benchmark.timing.name
        for benchmark in benchmarks_of(experiments, PUBLISHED, plan_job(Reproduce(("table2",))).device)
    }
    assert all(any(file.name.startswith(name) for name in names) for file in (PUBLISHED / "timing").iterdir())


def test_runs_of_another_precision_are_other_runs() -> None:
    names = ("table1", "table4", "table5", "fig2")
    plain, half, compiled = (plan(*names), plan(*names, precision="bf16"), plan(*names, compile=True))
    keys = [{cell.key for cell in cells} for cells in (plain, half, compiled)]
    assert len(set.union(*keys)) == sum(map(len, keys))
    assert {cell.config.train.precision for cell in half} == {"bf16"}
    assert all(cell.config.train.compile for cell in compiled)
    assert [cell.measures for cell in plain] == [cell.measures for cell in half]
    jobs = [plan_job(Reproduce(("table2",), precision=precision)) for precision in ("fp32", "bf16")]
    benchmark, other = (benchmarks_of(job.experiments, PUBLISHED, job.device)[0].timing for job in jobs)
    assert benchmark.name != other.name
    assert other.train.precision == "bf16"


def test_a_measurement_of_another_batch_size_is_another() -> None:
    plain, small = plan("table1", "fig1", "fig5", "figS1"), plan("table1", "fig1", "fig5", "figS1", batch_size=7)
    assert [cell.key for cell in plain] == [cell.key for cell in small]
    pairs = [pair for a, b in zip(plain, small, strict=True) for pair in zip(a.measures, b.measures, strict=True)]
    assert {type(measure) for measure, _ in pairs} == {Attacked, Curve, Inverse}
    assert all(measure_key(before) != measure_key(after) and after.batch_size == 7 for before, after in pairs)


def test_every_command_passes_them_on() -> None:
    options = Reproduce(("table1",), precision="fp16", compile=True, batch_size=64)
    args = job_command(options)
    assert args[args.index("--precision") + 1] == "fp16"
    assert args[args.index("--batch-size") + 1] == "64"
    assert "--compile" in args
    assert not {"--precision", "--batch-size", "--compile"} & set(job_command(Reproduce(("table1",))))


def test_the_commands_of_such_a_plan_make_its_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("reproduce", "table1", "--only", "sat", "--out", str(tmp_path), *GIVEN)
    with tiny_scale():
        (command,) = [line for line in call(capsys, *args, "--plan").out.splitlines() if line.startswith("uiat ")]
        found = call(capsys, *shlex.split(command)[1:])
        assert found.code == 0, found.err
        assert not (tmp_path / "table1.md").exists(), "a --cell command writes no tables"
        assert "1 runs, 0 to make" in call(capsys, *args, "--plan").out
        assert call(capsys, *args, "--jobs", "0").code == 0
        assert "1 runs, 1 to make" in call(capsys, *args[:-4], "--plan").out
    (config,) = tmp_path.glob("runs/*/config.json")
    assert json.loads(config.read_text(encoding="utf-8"))["train"]["precision"] == "bf16"
    measured = [json.loads(file.read_text(encoding="utf-8")) for file in tmp_path.glob("runs/*/measures/pgd-*.json")]
    assert measured
    assert all(facts["batch_size"] == 7 for facts in measured)
    assert "| SAT | –" not in (tmp_path / "table1.md").read_text(encoding="utf-8")


def test_a_batch_size_of_zero_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--batch-size is 0" in refused(capsys, "reproduce", "table1", "--batch-size", "0", "--plan")
