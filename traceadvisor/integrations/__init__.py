"""What plugs into the tools that people already use."""
