"""Simulated trainings on GPUs that are not at hand, each with one planted fault, or none.

Kernel names, arguments and durations are those that such trainings show in public recordings. ``advice.toml`` labels
them; :func:`written` makes the file of one.
"""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from tests.build import AUTOGRAD
from tests.recordings.generated.machine import A100, COMPUTE, H100, MI300, V100, Kernel, Process

NCCL = 20
"""The stream of collectives."""

BF16 = ("c10::BFloat16", "c10::BFloat16")
HALF = ("c10::Half", "c10::Half")
FLOAT = ("float", "float")

ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, 3ul>>(int, {})"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float, {})"
REDUCE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::sum_functor<float>>>({})"
ADAM = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<{}FusedAdamMathFunctor<float, 4>>({})"
FLASH_FORWARD = "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, cutlass::bfloat16_t>>({})"
FLASH_BACKWARD = "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, 128, 8>>({})"


def elementwise(us: float, functor: str = "CUDAFunctor_add<float>") -> Kernel:
    """A kernel that reads and writes each element once."""
    return Kernel(ELEMENTWISE.format(functor, functor), us)


def matmul(process: Process, kernel: str, us: float, sizes: tuple[int, int, int], types: Sequence[str]) -> None:
    """A matrix product of ``m x k`` and ``k x n``, forward or backward; ``sizes`` are ``m``, ``n``, ``k``."""
    m, n, k = sizes
    names = ("MmBackward0", "aten::mm") if process.thread == AUTOGRAD else ("aten::linear", "aten::mm")
    process.op(*names, us=22, kernels=[Kernel(kernel, us)], dims=[[m, k], [k, n]], types=types)


def update(process: Process, us: float, name: str = "AdamW", launches: int = 4) -> None:
    """A fused optimizer."""
    with process.within(f"Optimizer.step#{name}.step"):
        process.op(
            "aten::_fused_adamw_",
            us=40,
            kernels=[Kernel(ADAM, us / launches, blocks_per_sm=4.0) for _ in range(launches)],
        )
    with process.within(f"Optimizer.zero_grad#{name}.zero_grad"):
        process.busy(30)


# -- communication ----------------------------------------------------------------------------------------------------


def fsdp_exposed_gathers() -> Process:
    """FSDP on 32 H100: each layer's weights are gathered only when it is reached, and computing waits for them."""
    process = Process(H100, rank=2, ranks=32)
    gather = Kernel("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 2900, NCCL, 0.18, 12)
    scatter = Kernel("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 3000, NCCL, 0.18)
    elements = 218_000_000

    def gathered() -> None:
        process.collective("_allgather_base", gather, elements=elements, sent=elements // 32)
        process.hold(COMPUTE, NCCL)

    def layer(*, back: bool) -> None:
        times = 2 if back else 1
        for _ in range(times):
            for n, k, us in ((12288, 4096, 620), (4096, 4096, 210), (22016, 4096, 1100), (4096, 11008, 560)):
                matmul(process, "nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT", us, (4096, n, k), BF16)
            process.op("aten::add", kernels=[elementwise(60)])
        name = "FlashAttnFuncBackward" if back else "FlashAttnFunc"
        process.op(name, us=40, kernels=[Kernel(FLASH_BACKWARD if back else FLASH_FORWARD, 700 if back else 300)])

    for number in range(11, 15):
        with process.step(number):
            process.upload(30, 65_536, pinned=True)
            with process.within("FullyShardedDataParallel.forward"):
                for _ in range(10):
                    with process.within("FullyShardedDataParallel._pre_forward"):
                        gathered()
                    layer(back=False)
            with process.backward():
                for _ in range(10):
                    with process.within("FullyShardedDataParallel._pre_backward_hook"):
                        gathered()
                    layer(back=True)
                    with process.within("FullyShardedDataParallel._post_backward_hook"):
                        process.collective("_reduce_scatter_base", scatter, elements=elements // 32, sent=elements)
            process.hold(COMPUTE, NCCL)
            update(process, 1800)
            process.item()
    return process


def tensor_parallel() -> Process:
    """Megatron on 8 A100 with tensor parallelism over all of them: two all-reduces per layer in both directions."""
    process = Process(A100, rank=5, ranks=8)
    reduce = Kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 350, NCCL, 0.22, 14)

    def half(*, back: bool, shapes: Sequence[tuple[int, int, float]]) -> None:
        for _ in range(2 if back else 1):
            for n, k, us in shapes:
                name = "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_tn"
                matmul(process, name, us, (2048, n, k), BF16)
        process.op("aten::dropout", kernels=[elementwise(50)])
        process.op("FusedLayerNorm", us=25, kernels=[Kernel(NORM, 45)])
        process.collective("allreduce", reduce, elements=2048 * 8192, group="TENSOR_MODEL_PARALLEL_GROUP", size=8)
        process.hold(COMPUTE, NCCL)

    for number in range(3, 8):
        with process.step(number):
            for _ in range(10):
                half(back=False, shapes=((3072, 8192, 560), (8192, 1024, 180)))
                half(back=False, shapes=((4096, 8192, 740), (8192, 4096, 740)))
            with process.backward():
                for _ in range(10):
                    half(back=True, shapes=((4096, 8192, 740), (8192, 4096, 740)))
                    half(back=True, shapes=((3072, 8192, 560), (8192, 1024, 180)))
            update(process, 2600, "FusedAdam")
            process.item()
    return process


def pipeline_bubbles() -> Process:
    """The third of four pipeline stages on A100, with two micro-batches: it mostly waits for its neighbours."""
    process = Process(A100, rank=2, ranks=4)
    name = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"

    def exchange(us: float, what: str) -> None:
        kernel = Kernel(name, us, NCCL, 0.1, 6)
        process.collective(what, kernel, elements=8 * 1024 * 2048, group="PIPELINE_MODEL_PARALLEL_GROUP", size=4)
        process.hold(COMPUTE, NCCL)

    def stage(*, back: bool) -> None:
        for _ in range(4):
            for _ in range(2 if back else 1):
                for n, k, us in ((6144, 2048, 980), (2048, 2048, 330), (8192, 2048, 1300), (2048, 8192, 1300)):
                    matmul(process, "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_tn", us, (8192, n, k), BF16)
            process.op("aten::gelu", kernels=[elementwise(160)])

    for number in range(20, 25):
        with process.step(number):
            for micro in range(2):
                exchange(26_000 if micro == 0 else 400, "recv")
                stage(back=False)
                exchange(300, "send")
            for micro in range(2):
                exchange(52_000 if micro == 0 else 900, "recv")
                with process.backward():
                    stage(back=True)
                exchange(300, "send")
            update(process, 900)
            exchange(40_000, "recv")
            process.item()
    return process


# -- kernels ----------------------------------------------------------------------------------------------------------


def unet_layouts() -> Process:
    """A diffusion U-Net in float16 on an A100 whose tensors are not in channels_last."""
    process = Process(A100)
    to_nhwc = "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, false, true>({})"
    to_nchw = "void cudnn::engines_precompiled::nhwcToNchwKernel<__half, __half, float, true, false>({})"
    conv = "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1"

    def convolution(channels: int, side: int, us: float) -> None:
        back = process.thread == AUTOGRAD
        names = (
            ("ConvolutionBackward0", "aten::convolution_backward")
            if back
            else ("aten::conv2d", "aten::cudnn_convolution")
        )
        turns = [Kernel(to_nhwc, 0.22 * us), Kernel(to_nhwc, 0.03 * us), Kernel(conv, us), Kernel(to_nchw, 0.22 * us)]
        dims = [[8, channels, side, side], [channels, channels, 3, 3]]
        process.op(*names, us=60, kernels=turns * (2 if back else 1), dims=dims * (2 if back else 1), types=HALF)
        norm = "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<c10::Half, float>({})"
        process.op("aten::group_norm", us=40, kernels=[Kernel(norm, 0.12 * us), elementwise(0.1 * us)])
        process.op("aten::silu", kernels=[elementwise(0.08 * us, "silu_kernel")])

    for number in range(5, 10):
        with process.step(number):
            process.upload(80, 1_048_576, pinned=True)
            for channels, side, us in ((320, 64, 900), (640, 32, 700), (1280, 16, 600)) * 4:
                convolution(channels, side, us)
            with process.backward():
                for channels, side, us in ((1280, 16, 600), (640, 32, 700), (320, 64, 900)) * 4:
                    convolution(channels, side, us)
            update(process, 3500)
            process.item()
    return process


BATCHED_MATMUL = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 11, false, false>(float*, {})"
SOFTMAX_BACK = "void (anonymous namespace)::softmax_warp_backward<float, float, float, 11, false, false>({})"
CAST = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda({})>"
HEADS, LENGTH, WIDTH = 8 * 32, 2048, 64


def written_out_attention(process: Process) -> None:
    """The forward pass of attention as separate operators."""
    scores = [[HEADS, LENGTH, WIDTH], [HEADS, WIDTH, LENGTH]]
    values = [[HEADS, LENGTH, LENGTH], [HEADS, LENGTH, WIDTH]]
    process.op("aten::matmul", "aten::bmm", us=30, kernels=[Kernel(BATCHED_MATMUL, 1500)], dims=scores, types=BF16)
    process.op("aten::div", kernels=[elementwise(2600, "BUnaryFunctor<c10::BFloat16>")])
    process.op("aten::masked_fill", us=20, kernels=[elementwise(2900, "masked_fill_kernel")])
    process.op("aten::to", "aten::_to_copy", "aten::copy_", us=20, kernels=[Kernel(CAST, 2700)])
    process.op("aten::softmax", "aten::_softmax", us=20, kernels=[Kernel(SOFTMAX, 5000)])
    process.op("aten::to", "aten::_to_copy", "aten::copy_", us=20, kernels=[Kernel(CAST, 2700)])
    process.op("aten::dropout", "aten::native_dropout", us=20, kernels=[elementwise(3600, "fused_dropout_kernel_vec")])
    process.op("aten::matmul", "aten::bmm", us=30, kernels=[Kernel(BATCHED_MATMUL, 1600)], dims=values, types=BF16)


def written_out_attention_back(process: Process) -> None:
    """Its backward pass."""
    shapes = [[HEADS, LENGTH, LENGTH], [HEADS, LENGTH, WIDTH]]
    for us in (1600, 1600):
        process.op("BmmBackward0", "aten::bmm", us=30, kernels=[Kernel(BATCHED_MATMUL, us)], dims=shapes, types=BF16)
    process.op("NativeDropoutBackward0", kernels=[elementwise(3300, "masked_scale_kernel")])
    process.op("ToCopyBackward0", "aten::_to_copy", kernels=[Kernel(CAST, 2700)])
    process.op("SoftmaxBackward0", "aten::_softmax_backward_data", kernels=[Kernel(SOFTMAX_BACK, 5600)])
    process.op("MaskedFillBackward0", kernels=[elementwise(2900, "masked_fill_kernel")])
    process.op("DivBackward0", kernels=[elementwise(2600)])
    for us in (1600, 1600):
        process.op("BmmBackward0", "aten::bmm", us=30, kernels=[Kernel(BATCHED_MATMUL, us)], dims=shapes, types=BF16)


def unfused_attention() -> Process:
    """A language model in bfloat16 on an A100 whose attention is written out, with a softmax in float32."""
    process = Process(A100)
    for number in range(100, 104):
        with process.step(number):
            for _ in range(6):
                process.op("aten::layer_norm", us=25, kernels=[Kernel(NORM, 150)])
                matmul(process, "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_tn", 1900, (16384, 6144, 2048), BF16)
                written_out_attention(process)
                for n, k, us in ((2048, 2048, 640), (8192, 2048, 2500), (2048, 8192, 2500)):
                    matmul(process, "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_tn", us, (16384, n, k), BF16)
            with process.backward():
                for _ in range(6):
                    for n, k, us in ((2048, 8192, 2500), (8192, 2048, 2500), (2048, 2048, 640)) * 2:
                        matmul(process, "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_nn", us, (16384, n, k), BF16)
                    written_out_attention_back(process)
                    for _ in range(2):
                        matmul(
                            process, "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_nt", 1900, (16384, 2048, 6144), BF16
                        )
            update(process, 3200)
            process.item()
    return process


def amd_float32() -> Process:
    """A transformer in float32 on an MI300X, without mixed precision."""
    process = Process(MI300)
    gemm = "Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT128x128x16_MI16x16x1_SN_LDSB0_AFC1"
    for number in range(7, 12):
        with process.step(number):
            process.upload(60, 262_144, pinned=True)
            for _ in range(8):
                for n, k, us in ((6144, 2048, 2400), (2048, 2048, 850), (8192, 2048, 3200), (2048, 8192, 3200)):
                    matmul(process, gemm, us, (8192, n, k), FLOAT)
                process.op("aten::scaled_dot_product_attention", us=40, kernels=[Kernel("attn_fwd.kd", 900)])
                process.op("aten::layer_norm", us=25, kernels=[Kernel(NORM, 70)])
            with process.backward():
                for _ in range(8):
                    for n, k, us in ((2048, 8192, 3200), (8192, 2048, 3200), (2048, 2048, 850), (6144, 2048, 2400)) * 2:
                        matmul(process, gemm, us, (8192, n, k), FLOAT)
                    process.op("ScaledDotProductBackward0", us=40, kernels=[Kernel("bwd_kernel_dk_dv.kd", 1900)])
            update(process, 900)
            process.item()
    return process


def nothing_planted() -> Process:
    """A language model on an H100 that was tuned: bfloat16, fused attention, fused optimizer, long kernels."""
    process = Process(H100)
    for number in range(50, 55):
        with process.step(number):
            process.upload(40, 131_072, pinned=True, stream=13)
            for _ in range(12):
                for n, k, us in ((12288, 4096, 1240), (4096, 4096, 420), (22016, 4096, 2250), (4096, 11008, 1130)):
                    matmul(process, "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNT", us, (8192, n, k), BF16)
                process.op("FlashAttnFunc", us=40, kernels=[Kernel(FLASH_FORWARD, 700)])
                process.op("LigerRMSNorm", us=25, kernels=[Kernel("_rms_norm_forward_kernel", 80)])
            with process.backward():
                for _ in range(12):
                    for n, k, us in (
                        (4096, 11008, 1130),
                        (22016, 4096, 2250),
                        (4096, 4096, 420),
                        (12288, 4096, 1240),
                    ) * 2:
                        matmul(process, "nvjet_tst_128x256_64x4_2x1_v_bz_coopB_NNT", us, (8192, n, k), BF16)
                    process.op("FlashAttnFuncBackward", us=40, kernels=[Kernel(FLASH_BACKWARD, 1700)])
                    process.op("LigerRMSNormBackward", us=25, kernels=[Kernel("_rms_norm_backward_kernel", 120)])
            update(process, 3000)
            process.item()
    return process


# -- the CPU holds up the GPU -----------------------------------------------------------------------------------------


def detection_syncs() -> Process:
    """A detector on a V100 that reads the number of boxes of each picture and level, in mixed precision."""
    process = Process(V100)
    conv = "turing_fp16_s884cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc2nchw_tn_v1"
    stack = ("torchvision/models/detection/roi_heads.py(741): forward", "train_detector.py(88): train_step")
    for number in range(9, 14):
        with process.step(number):
            process.upload(500, 4_000_000, pinned=True)
            for _ in range(50):
                dims = [[4, 256, 64, 64], [256, 256, 3, 3]]
                process.op(
                    "aten::conv2d", "aten::cudnn_convolution", us=35, kernels=[Kernel(conv, 260)], dims=dims, types=HALF
                )
                process.op("aten::relu_", us=10, kernels=[elementwise(40)])
            for _ in range(40):
                process.op("aten::gt", us=10, kernels=[elementwise(5)])
                process.op("aten::nonzero", us=25, kernels=[elementwise(6, "compare"), elementwise(7, "scatter")])
                process.item("aten::item", stack)
                process.busy(180)
                process.op("aten::index", us=20, kernels=[elementwise(8, "index_kernel")])
                process.op("torchvision::nms", us=40, kernels=[Kernel("nms_kernel_impl<float>", 25)])
                process.item("aten::item", stack)
                process.busy(140)
            with process.backward():
                for _ in range(50):
                    dims = [[4, 256, 64, 64], [256, 256, 3, 3]] * 2
                    names = ("ConvolutionBackward0", "aten::convolution_backward")
                    process.op(*names, us=60, kernels=[Kernel(conv, 270), Kernel(conv, 270)], dims=dims, types=HALF)
            update(process, 900, "SGD")
    return process


def many_small_copies() -> Process:
    """A recommender on an A100 that copies each of its 120 sparse features to the GPU by itself."""
    process = Process(A100)
    lookup = "void split_embedding_codegen_forward_unweighted_kernel<float, float, float, int64_t, 128>({})"
    for number in range(30, 36):
        with process.step(number):
            for _ in range(120):
                process.upload(4, 32_768, pinned=False)
            process.op("fbgemm::split_embedding_lookup", us=60, kernels=[Kernel(lookup, 900)])
            for n, k, us in ((1024, 512, 60), (1024, 1024, 90), (512, 1024, 50), (256, 512, 30)):
                matmul(process, "ampere_sgemm_tf32_128x128_ldg8_f2f_tn_s1688", us, (4096, n, k), FLOAT)
                process.op("aten::relu", us=10, kernels=[elementwise(12)])
            with process.backward():
                for n, k, us in ((256, 512, 30), (512, 1024, 50), (1024, 1024, 90), (1024, 512, 60)) * 2:
                    matmul(process, "ampere_sgemm_tf32_128x128_ldg8_f2f_nt_s1688", us, (4096, n, k), FLOAT)
                process.op("SplitLookupBackward", us=60, kernels=[Kernel(lookup.replace("forward", "backward"), 1500)])
            update(process, 80)
    return process


def tiny_recurrent_kernels() -> Process:
    """A recurrent network on a V100, one time step at a time: thousands of kernels of a few microseconds."""
    process = Process(V100)
    gemm = "volta_sgemm_32x32_sliced1x4_tn"
    for number in range(4, 9):
        with process.step(number):
            process.upload(20, 65_536, pinned=True)
            for _ in range(100):
                dims, types = [[32, 256], [256, 512]], FLOAT
                process.op("aten::cat", us=14, kernels=[Kernel("CatArrayBatchedCopy", 2.2, COMPUTE, 0.4, 8)])
                small = Kernel(gemm, 6.5, COMPUTE, 0.4, 6)
                process.op("aten::linear", "aten::addmm", us=24, kernels=[small], dims=dims, types=types)
                for name in ("aten::sigmoid", "aten::tanh", "aten::mul", "aten::lerp"):
                    process.op(name, us=12, kernels=[elementwise(2.0, name)])
            with process.backward():
                for _ in range(100):
                    for name in ("LerpBackward0", "MulBackward0", "TanhBackward0", "SigmoidBackward0"):
                        process.op(name, us=16, kernels=[elementwise(2.1, name)])
                    for _ in range(2):
                        small = Kernel(gemm, 7.0, COMPUTE, 0.4, 6)
                        dims = [[32, 512], [512, 256]]
                        process.op("AddmmBackward0", "aten::mm", us=26, kernels=[small], dims=dims, types=FLOAT)
            update(process, 12, "RMSprop", launches=3)
    return process


def graph_breaks() -> Process:
    """A compiled model on an A100 with a graph break after each block: Python between short compiled regions."""
    process = Process(A100)
    frame = "torch/_dynamo/eval_frame.py(838): _fn"
    for number in range(40, 45):
        with process.step(number):
            process.upload(25, 65_536, pinned=True)
            for block in range(24):
                with process.python("model.py(57): forward"):
                    process.busy(260)
                    with process.python(frame), process.within(f"Torch-Compiled Region: {block}/0"):
                        process.busy(45)
                        for kind, us in (("mm", 16), ("red_fused__layer_norm_0", 8), ("poi_fused_gelu_1", 7)):
                            name = (
                                "ampere_bf16_s1688gemm_bf16_64x64_sliced1x2_ldg8_f2f_tn"
                                if kind == "mm"
                                else f"triton_{kind}"
                            )
                            process.launch(Kernel(name, us))
                            process.busy(8)
            with process.backward():
                for _ in range(24):
                    process.op(
                        "CompiledFunctionBackward",
                        us=110,
                        kernels=[
                            Kernel(name, 14)
                            for name in ("triton_red_fused_2", "cutlass_80_tensorop_bf16", "triton_poi_fused_3")
                        ],
                    )
            update(process, 60)
    return process


def two_steps_of_an_example() -> Process:
    """Two steps of a ResNet in float32 on a V100 whose pictures the training process loads, as in tutorials."""
    process = Process(V100)
    conv = "volta_scudnn_128x64_relu_interior_nn_v1"
    norm = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>({})"
    for number in (2, 3):
        with process.step(number):
            with process.loader("_SingleProcessDataLoaderIter"):
                for _ in range(32):
                    process.busy(1400)
                    process.op("aten::to", "aten::copy_", us=120)
                    process.op("aten::sub_", "aten::sub_", us=90)
                process.op("aten::stack", "aten::cat", us=3000)
            process.upload(1900, 19_267_584, pinned=False)
            for _ in range(50):
                dims = [[32, 128, 28, 28], [128, 128, 3, 3]]
                process.op(
                    "aten::conv2d",
                    "aten::cudnn_convolution",
                    us=60,
                    kernels=[Kernel(conv, 600)],
                    dims=dims,
                    types=FLOAT,
                )
                process.op("aten::batch_norm", us=45, kernels=[Kernel(norm, 90)])
                process.op("aten::relu_", us=15, kernels=[elementwise(35)])
            with process.backward():
                for _ in range(50):
                    names, dims = (
                        ("ConvolutionBackward0", "aten::convolution_backward"),
                        [[32, 128, 28, 28], [128, 128, 3, 3]],
                    )
                    process.op(
                        *names, us=80, kernels=[Kernel(conv, 620), Kernel(conv, 600)], dims=dims * 2, types=FLOAT
                    )
                    process.op("CudnnBatchNormBackward0", us=45, kernels=[Kernel(norm, 110)])
            update(process, 700, "SGD")
            process.item()
    return process


def graphed_with_a_data_stall() -> Process:
    """A training step captured as a CUDA graph on an H100 that waits for two loader workers in each step."""
    process = Process(H100)
    block = [
        Kernel("nvjet_tst_128x128_64x6_2x1_v_bz_TNT", 55),
        Kernel("triton_red_fused_add_native_layer_norm_3", 9),
        Kernel("triton_poi_fused_gelu_7", 11),
        Kernel("nvjet_tst_192x192_64x4_1x2_h_bz_coopA_NNT", 70),
    ]
    for number in range(60, 67):
        with process.step(number):
            with process.loader():
                process.busy(9_000 if number % 2 else 12_500)
            process.upload(260, 12_000_000, pinned=True)
            with process.python("torch/cuda/graphs.py(141): replay"):
                process.replay_graph(block * 60)
            process.item()
    return process


TRAININGS: dict[str, Callable[[], Process]] = {
    "h100-fsdp-exposed-gathers": fsdp_exposed_gathers,
    "a100-tensor-parallel": tensor_parallel,
    "a100-pipeline-bubbles": pipeline_bubbles,
    "a100-unet-layouts": unet_layouts,
    "a100-unfused-attention": unfused_attention,
    "v100-detection-syncs": detection_syncs,
    "a100-many-small-copies": many_small_copies,
    "v100-tiny-recurrent-kernels": tiny_recurrent_kernels,
    "a100-graph-breaks": graph_breaks,
    "v100-two-steps-of-an-example": two_steps_of_an_example,
    "mi300x-float32": amd_float32,
    "h100-graphed-data-stall": graphed_with_a_data_stall,
    "h100-nothing-planted": nothing_planted,
}


@cache
def written(name: str) -> Path:
    """Write the trace of a training to a folder that is removed at exit; returns the file."""
    return TRAININGS[name]().trace.write(_folder() / f"{name}.pt.trace.json.gz")


@cache
def _folder() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="generated-trainings-")
    atexit.register(folder.cleanup)
    return Path(folder.name)
