"""The former name of `task_file`."""

from __future__ import annotations

from sentence_experts.tasks.task_file import Task, TaskFile

Hierarchy = TaskFile
__all__ = ["Hierarchy", "Task"]
