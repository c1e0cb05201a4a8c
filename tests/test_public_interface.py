"""The public interface is what is written down: a change of it is seen in review.

After a change that is meant, write it down anew: `python tests/test_public_interface.py`.
"""

import inspect
import re
from dataclasses import fields
from pathlib import Path

import transom as tm
from transom.settings import Settings, SettingValues

PROVISIONAL = "Provisional: may change in a minor version."
WRITTEN = Path(__file__).with_suffix(".txt")


def signature(value: object) -> str:
    """The parameters as users see them: names, kinds, defaults."""
    try:
        return str(inspect.signature(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""


def members(name: str, value: type) -> list[str]:
    found = []
    for attribute, member in sorted(vars(value).items()):
        if attribute.startswith("_"):
            continue
        plain = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        found.append(f"{name}.{attribute}{signature(plain) if callable(plain) else ''}")
    if isinstance(value, type) and hasattr(value, "__dataclass_fields__"):
        found += [f"{name}.{field.name}: {field.type}" for field in fields(value) if not field.name.startswith("_")]
    return sorted(set(found))


def surface() -> str:
    lines = []
    for module, prefix in ((tm, "tm"), (tm.sources, "tm.sources"), (tm.sinks, "tm.sinks"), (tm.tables, "tm.tables")):
        for name in sorted(module.__all__):
            value = getattr(module, name)
            if inspect.ismodule(value):
                continue
            called = callable(value) and not (isinstance(value, type) and issubclass(value, BaseException))
            lines.append(f"{prefix}.{name}{signature(value) if called else ''}")
            if isinstance(value, type) and not issubclass(value, BaseException):
                lines += members(f"{prefix}.{name}", value)
    return "\n".join(lines) + "\n"


def test_the_public_interface_is_what_is_written_down():
    assert surface() == WRITTEN.read_text(encoding="utf-8"), "if it is meant: python tests/test_public_interface.py"


def test_every_public_name_is_described():
    for module in (tm, tm.sources, tm.sinks, tm.tables):
        for name in module.__all__:
            value = getattr(module, name)
            assert value is tm.Window or inspect.getdoc(value), name


def test_provisional_parts_are_those_that_say_so():
    page = Path(__file__).parents[1] / "docs" / "reference" / "stability.md"
    listed = re.findall(r"^- `([\w.]+)`$", page.read_text(encoding="utf-8"), re.MULTILINE)
    says = []
    for module, prefix in ((tm, "tm"), (tm.sources, "tm.sources"), (tm.sinks, "tm.sinks"), (tm.tables, "tm.tables")):
        for name in module.__all__:
            if PROVISIONAL in (inspect.getdoc(getattr(module, name)) or "").splitlines():
                says.append(f"{prefix}.{name}")
    assert sorted(set(says) - {"tm.sources.Source", "tm.sinks.Sink"}) == listed


def test_settings_as_users_write_them_are_the_settings():
    assert list(SettingValues.__annotations__) == [field.name for field in fields(Settings)]


if __name__ == "__main__":
    WRITTEN.write_text(surface(), encoding="utf-8")
