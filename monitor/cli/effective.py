"""The effective configuration as YAML that can be saved and used: a remark on each key says what it is and who set it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from monitor.config import MonitorConfig, default_alarms


def effective_yaml(config: MonitorConfig, file: Path | None) -> str:
    """Write every key with its value. Keys that `file` sets are marked."""
    given: Any = {} if file is None else yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    head = f"# effective configuration; [file] marks what {file or 'a file'} sets, the rest are defaults\n"
    return head + "\n".join(_lines(config, given, "")) + "\n"


def _lines(model: BaseModel, given: Any, indent: str) -> list[str]:
    lines: list[str] = []
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        inner = given.get(name) if isinstance(given, dict) else None
        mark = "[file] " if isinstance(given, dict) and name in given else ""
        if isinstance(value, BaseModel):
            lines += [f"{indent}{name}:", *_lines(value, inner, indent + "  ")]
        elif isinstance(value, dict) and value and all(isinstance(item, BaseModel) for item in value.values()):
            lines.append(f"{indent}{name}:")
            lines += [f"{indent}  {key}: null  # [file] removed" for key in default_alarms() if name == "alarms" and key not in value]
            for key, item in value.items():
                lines += [f"{indent}  {key}:", *_lines(item, inner.get(key) if isinstance(inner, dict) else None, indent + "    ")]
        else:
            remark = f"{mark}{field.description or ''}".strip()
            lines.append(f"{indent}{name}: {_scalar(model.model_dump(mode='json')[name])}" + (f"  # {remark}" if remark else ""))
    return lines


def _scalar(value: object) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
