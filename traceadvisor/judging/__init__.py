"""A trace file to its judgement: run the rules on its facts, fold and rank what they find."""
