"""What the phases of a latency cost by, and which of them keep what busy: the twelve of the paper, as they are here.

Li, Diao and Shenoy (2015), Table 2, follow a tuple through map and reduce processes that never end. Here a cut of a
stream is one Spark job, so there is planning and launching, the shuffle lies within the job, and what follows it is on
the way from a cut to the windows that it completes. The phases themselves are in `model.phases`.
"""

from __future__ import annotations

from transom.model.phases import OF_A_JOB, Phase

UNITS = {
    Phase.LAUNCH: "tasks",
    Phase.MAP: "rows",
    Phase.EXCHANGE: "shuffled",
    Phase.COLLECT: "partials",
    Phase.COMMIT: "partials",
    Phase.CONSOLIDATE: "merged",
    Phase.DELIVER: "results",
}
"""What a phase costs by: rows of the cut, tasks, rows of partials between and behind the tasks, rows of partials that
are merged into windows, or rows of results; the others take the same time for any cut."""
TASKS = (Phase.MAP, Phase.EXCHANGE)
"""The phases in which tasks run; their fixed cost is of each task."""
CUT = (*OF_A_JOB, Phase.COMMIT)
"""The phases that the stream's next cut waits for."""
THREAD = (Phase.COMMIT, Phase.CLOSE, Phase.CONSOLIDATE)
"""The phases on the thread of the loop, which all streams share."""
DRIVER = (Phase.PLAN, Phase.LAUNCH, Phase.COLLECT, *THREAD)
"""The phases in which the driver or its JVM is busy."""
WORDS = {
    Phase.LOOK: "until the next look at the source",
    Phase.TURN: "own cut under way, trigger",
    Phase.SLOT: "jobs of other streams",
    Phase.PLAN: "the log, Spark's optimiser",
    Phase.LAUNCH: "tasks start",
    Phase.MAP: "read, parse, map, aggregate in part",
    Phase.EXCHANGE: "shuffle between tasks",
    Phase.COLLECT: "partials to the driver",
    Phase.COMMIT: "made durable, logged",
    Phase.CLOSE: "until the closing cut is logged",
    Phase.CONSOLIDATE: "partials merged into windows",
    Phase.DELIVER: "written, until visible",
}
"""What happens in them, for people."""
