"""ros2 launch monitor vla_monitor.launch.py [sim:=false] [config:=my.yaml] ...    (-s lists all arguments)

Starts what `vla-monitor up` starts, and stops all of it when it does: both read monitor.ros.plan.
"""

from __future__ import annotations

from collections.abc import Callable

from launch.actions import DeclareLaunchArgument, OpaqueFunction, RegisterEventHandler, Shutdown
from launch.event_handlers import OnProcessExit
from launch.events.process import ProcessExited
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from monitor.ros.plan import OPTIONS, PACKAGE, Process, Value, make_plan


def start(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """Make one action per process of the plan."""
    chosen = {option.name: LaunchConfiguration(option.name).perform(context) for option in OPTIONS}
    actions: list[LaunchDescriptionEntity] = []
    for process in make_plan(chosen):
        node = Node(
            package=PACKAGE,
            executable=process.executable,
            name=process.name,
            parameters=[{name: typed(value) for name, value in process.parameters.items()}],
            remappings=list(process.remappings.items()),
            output="screen",
            sigterm_timeout="15",  # a bag is closed in this time
        )
        actions.append(node)
        actions.append(RegisterEventHandler(OnProcessExit(target_action=node, on_exit=after(process))))
    return actions


def typed(value: Value) -> Value | ParameterValue:
    """Keep texts from being read as YAML, which would make a number of the robot named 7."""
    if isinstance(value, list):
        return ParameterValue(value, value_type=list[str])
    return ParameterValue(value, value_type=str) if isinstance(value, str) else value


def after(process: Process) -> Callable[[ProcessExited, LaunchContext], list[LaunchDescriptionEntity]]:
    """What is done when a process has ended: the rest is stopped if it failed, or if it ends all."""

    def on_exit(event: ProcessExited, context: LaunchContext) -> list[LaunchDescriptionEntity]:
        if event.returncode == 0 and not process.ends_all:
            return []
        return [Shutdown(reason=f"{process.name} has ended with code {event.returncode}")]

    return on_exit


def generate_launch_description() -> LaunchDescription:
    """Entry point of `ros2 launch`."""
    arguments = [
        DeclareLaunchArgument(option.name, default_value=option.default, description=option.description, choices=list(option.choices) or None)
        for option in OPTIONS
    ]
    return LaunchDescription([*arguments, OpaqueFunction(function=start)])
