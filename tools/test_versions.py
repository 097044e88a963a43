"""Run the numerical tests with the oldest and the newest torch, and with other Pythons: `make test-versions`.

Each environment is a folder of build/versions with a few gigabytes; one that is complete is used again. pip takes the
newest torch that its indexes have: name one with builds for CPUs alone (PIP_EXTRA_INDEX_URL) to download less.
--python 3.12 and --torch oldest (or newest) select environments; other arguments are passed on to pytest.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "versions"
TESTS = ["unit", "twins", "contract", "models", "data", "engine", "evaluation", "export", "distributed", "integration"]
OLDEST = ("2.5.1", "1.26.4")
"""torch and NumPy: the last patches of the oldest that pyproject.toml allows."""
PYTHONS = ("3.11", "3.12", "3.13")
FREE = ("torch", "numpy", "sympy", "setuptools", "ml_dtypes")
"""What constraints.txt does not decide here: an older torch or NumPy needs older ones of the others."""
FACTS = "import platform, numpy, torch; print(platform.python_version(), torch.__version__, numpy.__version__)"

Words = list[str | Path]


@dataclass(frozen=True)
class Environment:
    """An interpreter with a torch and, where it is not the newest, a NumPy."""

    python: Path
    minor: str
    torch: str
    numpy: str = ""

    @property
    def folder(self) -> Path:
        """Where it is."""
        return FOLDER / f"python{self.minor}-torch{self.torch}"

    @property
    def program(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def make(self) -> None:
        """Install it, unless it is complete."""
        done = self.folder / "done"
        if done.exists():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        subprocess.run([self.python, "-m", "venv", self.folder], check=True)
        lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        pins = [line for line in lines if line.split("==")[0] not in FREE]
        pins += [f"torch=={self.torch}", f"numpy=={self.numpy}" if self.numpy else "numpy"]
        (self.folder / "constraints.txt").write_text("\n".join(pins) + "\n", encoding="utf-8")
        pip: Words = [self.program, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-c", self.folder / "constraints.txt", "-e", f"{ROOT}[all,test,loops]"], check=True)
        done.touch()

    def test(self, more: list[str]) -> list[str]:
        """Run the tests; return a row of the table."""
        report = self.folder / "report.xml"
        report.unlink(missing_ok=True)
        pytest: Words = [self.program, "-m", "pytest", "-m", "not slow and not faults", "-p", "no:cacheprovider"]
        paths = [f"tests/{name}" for name in TESTS]
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        code = subprocess.run([*pytest, f"--junitxml={report}", *more, *paths], cwd=ROOT, env=variables).returncode
        facts = subprocess.run([self.program, "-c", FACTS], capture_output=True, text=True, check=True).stdout.split()
        if not report.exists():
            return [*facts, "0", f"pytest ended with {code}", "0"]
        suite = next(ElementTree.parse(report).iter("testsuite"))
        tests, failures, errors, skipped = (int(suite.get(n, 0)) for n in ("tests", "failures", "errors", "skipped"))
        failed = failures + errors
        return [*facts, str(tests - failed - skipped), str(failed or int(code != 0)), str(skipped)]


def interpreter(minor: str) -> Path | None:
    """Return the Python of a minor version: of PATH, or the newest of pyenv."""
    kept = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{minor}.*/bin/python"), key=_numbers, reverse=True)
    for found in [shutil.which(f"python{minor}"), *kept]:
        # pyenv puts names on PATH that only say that this version is not chosen
        if found and subprocess.run([found, "-c", "import venv"], capture_output=True).returncode == 0:
            return Path(found)
    return None


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.parts[-3])]


def newest(python: Path) -> str:
    """Return the newest torch that pip finds for a Python."""
    command: Words = [python, "-m", "pip", "index", "versions", "torch", "--disable-pip-version-check"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return said.split("(")[1].split(")")[0].split("+")[0]


def main(args: list[str]) -> int:
    """Make all environments, run the tests in each, print the table; return whether any has failed."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--python", choices=PYTHONS, help="this Python alone")
    parser.add_argument("--torch", choices=("oldest", "newest"), help="this torch alone; oldest: on the first Python")
    chosen, more = parser.parse_known_args(args)
    pythons = [chosen.python] if chosen.python else PYTHONS
    found = {minor: python for minor in pythons if (python := interpreter(minor))}
    environments = []
    if chosen.torch != "newest":
        environments += [Environment(python, minor, *OLDEST) for minor, python in list(found.items())[:1]]
    if chosen.torch != "oldest":
        environments += [Environment(python, minor, newest(python)) for minor, python in found.items()]
    rows = [["Python", "torch", "NumPy", "passed", "failed", "skipped"]]
    for environment in environments:
        print(f"== {environment.folder.relative_to(ROOT)}", flush=True)
        try:
            environment.make()
            rows.append(environment.test(more))
        except subprocess.CalledProcessError as error:
            rows.append([environment.minor, environment.torch, environment.numpy, "0", f"({error.returncode})", "0"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip())
    for minor in pythons:
        if minor not in found:
            print(f"Python {minor} was not found on PATH or in ~/.pyenv: not tested")
    return int(not environments or any(row[4] != "0" for row in rows[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
