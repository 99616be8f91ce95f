"""ros2 launch monitor vla_monitor.launch.py [sim:=false] [config:=my.yaml] ...    (-s lists all arguments)

Starts what `vla-monitor up` starts: both read monitor.ros.plan.
"""

from __future__ import annotations

from launch.actions import DeclareLaunchArgument, OpaqueFunction, RegisterEventHandler, Shutdown
from launch.event_handlers import OnProcessExit
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from monitor.ros.plan import OPTIONS, PACKAGE, make_plan


def start(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """Make one action per process of the plan."""
    chosen = {option.name: LaunchConfiguration(option.name).perform(context) for option in OPTIONS}
    actions: list[LaunchDescriptionEntity] = []
    for process in make_plan(chosen):
        node = Node(
            package=PACKAGE,
            executable=process.executable,
            name=process.name,
            parameters=[dict(process.parameters)],
            remappings=list(process.remappings.items()),
            output="screen",
            sigterm_timeout="15",  # a bag is closed in this time
        )
        actions.append(node)
        if process.ends_all:
            actions.append(RegisterEventHandler(OnProcessExit(target_action=node, on_exit=[Shutdown(reason=f"{process.name} has ended")])))
    return actions


def generate_launch_description() -> LaunchDescription:
    """Entry point of `ros2 launch`."""
    arguments = [
        DeclareLaunchArgument(option.name, default_value=option.default, description=option.description, choices=list(option.choices) or None)
        for option in OPTIONS
    ]
    return LaunchDescription([*arguments, OpaqueFunction(function=start)])
