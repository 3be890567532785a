"""Trains an agent: each step plays a rollout, and learns from it once."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from own_clock import clock_of_script, say
from stable_baselines3 import A2C

STEPS = 30


class Walk(gymnasium.Env[Any, Any]):
    """A walk to the left or right."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = np.zeros(4, np.float32)
        return self.place, {}

    def step(self, action: Any) -> Any:
        self.place = np.clip(self.place + 0.1 * action - 0.05, -1, 1).astype(np.float32)
        return self.place, float(action), False, False, {}


def main() -> None:
    torch.set_num_threads(1)
    clock = clock_of_script()

    class Agent(A2C):
        def collect_rollouts(self, *arguments: Any, **options: Any) -> Any:
            clock.begin()
            clock.pause()
            return super().collect_rollouts(*arguments, **options)

        def train(self) -> None:
            clock.end()
            super().train()

    agent = Agent("MlpPolicy", Walk(), n_steps=5, device="cpu", seed=0)
    agent.learn(5 * STEPS)
    say([float(one.detach().sum()) for one in agent.policy.parameters()])


if __name__ == "__main__":
    main()
