"""The machine this process runs on: cores, control groups, worker processes, checks of the installation."""
