"""The wheel in a bare installation: light, and clear about what an extra would bring."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# All that an application is asked to install.
BASE = ("confluent_kafka", "confluent_kafka.libs", "numpy", "numpy.libs")
LIGHT = "penstock, penstock.kafka.client_properties, penstock.kafka.connection"
LIMIT_S = 0.2


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel and its two dependencies, and nothing else."""
    place = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = place.glob("*.whl")
    venv.create(place / "env", symlinks=True)
    python = place / "env" / "bin" / "python"
    target = place / "env" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    site, here = target / "site-packages", Path(sysconfig.get_paths()["platlib"])
    install = [sys.executable, "-m", "uv", "pip", "install", "--offline", "--no-deps"]
    subprocess.run([*install, "--python", str(python), str(wheel)], check=True, capture_output=True)
    for name in BASE:
        if (here / name).exists():
            (site / name).symlink_to(here / name)
    return python


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(python), "-I", *arguments], capture_output=True, text=True)


def test_it_asks_for_two_libraries(bare: Path) -> None:
    code = "from importlib.metadata import requires; print(*requires('penstock'), sep='\\n')"
    lines = run(bare, "-c", code).stdout.splitlines()
    base = [line for line in lines if "extra ==" not in line]
    assert [line.split(">")[0].split("<")[0] for line in base] == ["confluent-kafka", "numpy"]


def test_the_light_part_costs_little_beyond_numpy(bare: Path) -> None:
    code = (
        "import numpy, time\n"
        "began = time.process_time()\n"
        f"import {LIGHT}\n"
        "print(time.process_time() - began)"
    )
    tries = [run(bare, "-c", code) for _ in range(5)]
    assert all(done.returncode == 0 for done in tries), tries[0].stderr
    assert min(float(done.stdout) for done in tries) < LIMIT_S


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("run", "analysis"),
        ("Cluster", "testbed"),
        ("land", "lake"),
        ("audit", "lake"),
        ("capacity", "all"),
        ("read", "cli"),
    ],
)
def test_what_needs_an_extra_names_it(bare: Path, name: str, extra: str) -> None:
    done = run(bare, "-c", f"import penstock; penstock.{name}")
    assert done.returncode == 1
    assert f"MissingPart: penstock.{name}: " in done.stderr
    assert f"pip install 'penstock[{extra}]'" in done.stderr


def test_every_name_loads_or_names_its_extra(bare: Path) -> None:
    code = (
        "import penstock\n"
        "for name in dir(penstock):\n"
        "    try:\n"
        "        getattr(penstock, name)\n"
        "    except penstock.MissingPart as error:\n"
        '        assert "pip install \'penstock[" in error.fix, (name, error)\n'
        "    else:\n"
        "        print(name)\n"
    )
    done = run(bare, "-c", code)
    assert done.returncode == 0, done.stderr
    light = {"StarDesign", "KneeShape", "ClientQuotas", "KpiWeights", "Estimate", "StepwiseTuning"}
    assert light <= set(done.stdout.split())


def test_the_command_names_its_extra(bare: Path) -> None:
    script = bare.with_name("penstock")
    done = subprocess.run([str(script), "doctor"], capture_output=True, text=True)
    assert done.returncode == 3
    assert "pip install 'penstock[cli]'" in done.stderr
