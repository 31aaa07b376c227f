"""What the Linux kernel tells about processes, beyond the standard library."""
