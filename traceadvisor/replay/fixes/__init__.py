"""What-ifs: how each fix changes the recorded tasks."""
