"""Copies recordings without what tells about people and machines: environment, paths, hosts, users, arguments."""
