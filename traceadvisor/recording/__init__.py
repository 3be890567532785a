"""Records a training run from inside its process, without a change to its code, and writes a bundle.

Modules that import torch are imported only after the script has imported it. So settings that the script makes before
(thread counts, allocator options) still take effect.
"""
