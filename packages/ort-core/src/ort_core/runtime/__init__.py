"""Running a plan: schedule, run state, executor, control flow, profiler."""
