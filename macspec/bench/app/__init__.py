"""What the app costs: measured in a terminal of its own, with the real engine and a paced one."""
