"""entry_points.py PYPROJECT SETUP_CFG: write the entry points of a pyproject.toml as a setup.cfg, which ament_cmake_python understands."""

import sys
import tomllib
from pathlib import Path


def main(pyproject: Path, setup_cfg: Path) -> None:
    """Convert the file."""
    groups = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]["entry-points"]
    lines = ["[options.entry_points]"]
    for group, points in groups.items():
        lines += [f"{group} ="] + [f"    {name} = {target}" for name, target in points.items()]
    setup_cfg.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
