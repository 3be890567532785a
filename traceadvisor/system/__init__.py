"""The machine of this process: cores, control groups, worker processes, checks of the installation."""
