"""The setting `plan` of an application: what it needs, what it does not go with, and a profile to begin with."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from transom.errors import DefinitionError, require_extra
from transom.model.sessions import is_connect, is_local
from transom.planning.profile import Profile
from transom.settings import AUTO, OFF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def profile_to_begin(
    plan: str, session: SparkSession, streams: Collection[str], any_cores: bool = False
) -> Profile | None:
    """Return the profile that a setting names, if it names one.

    Args:
        plan: The setting.
        session: Of the application.
        streams: Names of its streams.
        any_cores: Whether its executors come and go, so that a profile may have been made with another number of cores.

    Raises:
        DefinitionError: Planning does not go here, or the profile is none, damaged, or of something else.
    """
    if plan == OFF:
        return None
    require_extra("planning", ("scipy",), "plan")
    if is_connect(session):
        raise DefinitionError(
            "plan: a Spark Connect session does not tell what its tasks do, so that nothing is learned of their costs.",
            'Leave it out, plan="off", or use a classic session.',
        )
    dynamic = str(session.sparkContext.getConf().get("spark.dynamicAllocation.enabled", "false")).lower() == "true"
    if dynamic and not is_local(session):  # in local mode Spark pays no heed to it
        raise DefinitionError(
            "plan: Spark's dynamic allocation sets the number of executors, too, which plans are made for.",
            'Set spark.dynamicAllocation.enabled to false, or leave it out: plan="off".',
        )
    return None if plan == AUTO else _read(Path(plan), session, streams, any_cores)


def _read(path: Path, session: SparkSession, streams: Collection[str], any_cores: bool) -> Profile:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise DefinitionError(
            f"plan: the profile {path} cannot be read: {error}.",
            'Write "auto", "off", or the path of what transom profile JOB --out FILE has written.',
        ) from error
    profile = Profile.from_json(text, str(path))
    cores, spark = session.sparkContext.defaultParallelism, profile.equipment.versions.get("Spark", session.version)
    others = [f"Spark {spark}, here {session.version}"] if spark != session.version else []
    if profile.equipment.cores != cores and not any_cores:
        others.append(f"{profile.equipment.cores} cores, here {cores}")
    others += [f"it has no stream {name!r}" for name in streams if name not in profile.streams]
    if others:
        raise DefinitionError(
            f"plan: {path} was made elsewhere, or of another job: {'; '.join(others)}.",
            'Make it again, transom profile JOB --out FILE, or write plan="auto" to learn all anew.',
        )
    return profile
