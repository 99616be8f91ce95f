"""ROS 2: the only folder that imports rclpy."""
