"""What runs on a machine: the agent, the forge it starts, and the ranks the forge forks."""
