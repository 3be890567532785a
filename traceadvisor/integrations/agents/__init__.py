"""The server by which coding agents use TraceAdvisor: the Model Context Protocol over standard input and output."""
