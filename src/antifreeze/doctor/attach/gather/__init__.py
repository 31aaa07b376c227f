"""What touches the program and the machine: each module reads one thing."""
