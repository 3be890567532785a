"""Properties of a GPU kernel by its name: its kind of work, its number type, tensor cores and alignment.

Each library names its kernels in its own way; a name that none of the readers below knows stays unknown. Sources of the
conventions are beside each reader; ``tests/analysis/arithmetic/kernel_names.toml`` lists real names with their origin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from traceadvisor.analysis.arithmetic.work import Kind
from traceadvisor.frozen import frozen
from traceadvisor.hardware.devices import Precision

LONGEST_READ = 4_000
"""Characters of a name that are read; template arguments beyond them tell nothing new."""


@frozen
class KernelName:
    """Properties of a kernel by its name; None where it does not tell."""

    kind: Kind | None = None
    """The matrix operation; None for other work, and for unknown names."""

    is_plain: bool = False
    """Whether the kernel is known to multiply no matrices."""

    precision: Precision | None = None
    """Type of the factors while they are multiplied."""

    tensor_cores: bool | None = None
    """Whether it uses tensor cores (NVIDIA) or matrix cores (AMD)."""

    alignment: int | None = None
    """Elements that each load relies on to be aligned together."""

    is_generated: bool = False
    """Whether a compiler generated it, and so has fused it already."""

    is_fusable: bool = False
    """Whether it is an operation of torch that torch's compiler can fuse with others."""

    @property
    def is_known(self) -> bool:
        """Whether the kind of work is known."""
        return self.is_plain or self.kind is not None


UNKNOWN = KernelName()
PLAIN = KernelName(is_plain=True)

_ATOMS: tuple[tuple[Precision, str], ...] = (
    (Precision.FP8, r"float_?(?:8_)?e[45]m[23](?:fn)?(?:uz)?(?:_t)?|e[45]m[23](?:fn)?(?:uz)?|fp8|f8"),
    (Precision.BF16, r"(?:__)?(?:nv_|hip_)?bfloat16(?:_t)?|bf16|bhalf_t"),
    (Precision.TF32, r"tfloat32_t|tf32"),
    (Precision.FP16, r"(?:__)?half(?:_t)?|_?float16(?:_t)?|fp16|f16"),
    (Precision.INT8, r"u?int8(?:_t)?|[usi]8"),
    (Precision.FP64, r"double|fp64|f64"),
    (Precision.FP32, r"float32|float|fp32|f32"),
)
"""Names of number types, in lower case; longer ones first, since words may be several names in a row."""

_ATOM = "|".join(f"(?:{pattern})" for _, pattern in _ATOMS)
_FIRST_ATOM = re.compile(_ATOM)
_TYPED_WORD = re.compile(rf"(?<![a-z0-9])_{{0,2}}(?:{_ATOM})+(?![a-z0-9])")
"""``float``, ``__half``, ``bf16``, and words of several types in a row, such as ``f8f8bf16``: inputs come first."""

_BY_ATOM = tuple((precision, re.compile(pattern)) for precision, pattern in _ATOMS)

_NARROW_FIRST = (
    Precision.FP8,
    Precision.INT8,
    Precision.FP16,
    Precision.BF16,
    Precision.TF32,
    Precision.FP32,
    Precision.FP64,
)


def _type_of(atom: str) -> Precision | None:
    return next((precision for precision, pattern in _BY_ATOM if pattern.fullmatch(atom)), None)


def _types(text: str) -> Iterator[Precision]:
    """Yield the first type of each word of types, in order."""
    for word in _TYPED_WORD.finditer(re.sub(r"(?<=\d)x(?=[a-z])", " ", text).replace("_", " ")):
        atom = _FIRST_ATOM.match(word.group().strip())
        if atom and (precision := _type_of(atom.group())):
            yield precision


def _narrowest(found: Iterable[Precision]) -> Precision | None:
    """Return the narrowest type: accumulators and results are wider than factors. None if two are as narrow."""
    types = set(found)
    if not types:
        return None
    least = next(precision for precision in _NARROW_FIRST if precision in types)
    rivals = {precision for precision in types if precision.byte_count == least.byte_count} - {Precision.FP32}
    return least if len(rivals) < 2 else None


def _matrix(kind: Kind, precision: Precision | None, tensor_cores: bool | None) -> KernelName:  # noqa: FBT001  # a field's value
    return KernelName(kind=kind, precision=precision, tensor_cores=tensor_cores)


# -- readers: each gets the name in lower case and as it is, and returns None if the name is not of its family ---------

_HELPER = re.compile(
    r"splitk_?reduce|reducesplitk|compute\w{0,60}offsets|nchwtonhwc|nhwctonchw|batched_transpose|transpose_n?c\w{0,20}2"
    r"|subtensorop|scalepackedtensor|epilogue::impl::globalkernel|reduce_wgrad|generatewinogradtiles"
    r"|flash_bwd_(?:dot_do_o|convert_dq|clear)|(?:splitkv|flashattnfwd)_?combine|flashattnbwd(?:pre|post)process"
    r"|prepare_varlen|merge_(?:attn_)?states?|reshape_and_cache|elemwisernn|(?:lstm|gru)_elementwise|_finalize_matmul"
    r"|kern_precompute_indices|scale_?amax|quantize_?kernel"
)
"""Kernels around a matrix operation that multiply nothing: reductions of partial sums, layouts, index tables, casts."""

_DEPTHWISE = re.compile(r"depthwise|dw_?conv|conv2d_c1_k1|wgrad2d_c1_k1|dgrad2d_c1_k1")
"""One filter for each channel: a pass over memory, which no tensor core helps."""


def _helper(low: str, _: str) -> KernelName | None:
    return PLAIN if _HELPER.search(low) or _DEPTHWISE.search(low) else None


_INDUCTOR_PLAIN = re.compile(r"^triton_(?:poi|red|per|for|split_scan|mix)_")
_INDUCTOR_TEMPLATE = re.compile(r"^triton_(?:tem_(?:fused_)?|)(\w*)")


def _inductor(low: str, _: str) -> KernelName | None:
    """Read kernels of torch's compiler.

    Pointwise, reduction, persistent reduction and foreach kernels, and templates for products: named in
    ``torch/_inductor/codegen/triton.py`` and ``torch/_inductor/select_algorithm.py`` of PyTorch. The name of a template
    lists the operators and no types.
    """
    if not low.startswith("triton_"):
        return None
    if _INDUCTOR_PLAIN.match(low):
        return replace(PLAIN, is_generated=True)
    found = _INDUCTOR_TEMPLATE.match(low)
    operators = found.group(1) if found else ""
    if re.search(r"attention|flex", operators):
        kind = Kind.ATTENTION
    elif "conv" in operators:
        kind = Kind.CONVOLUTION
    elif re.search(r"mm|matmul", operators):
        kind = Kind.MATMUL
    else:
        return UNKNOWN
    return KernelName(kind=kind, is_generated=True)


_ATTENTION = re.compile(
    r"flash_?(?:fwd|bwd|attn|attention)|fmha|_sdpa_|attention|(?:^|[_:])attn_(?:fwd|bwd)|bwd_kernel_d[qk]"
    r"|batch(?:prefill|decode)with|single(?:prefill|decode)with|paged_attn"
)
_QUERY_TYPE = re.compile(r"_q(e4m3|e5m2|bfloat16|bf16|fp16)")


def _attention(low: str, _: str) -> KernelName | None:
    """Read fused attention.

    ``flash_fwd_kernel<...>`` of flash-attention, ``fmha_cutlassF_f16_aligned_...`` of PyTorch
    (``aten/src/ATen/native/transformers/cuda``), ``cudnn_generated_fort_native_sdpa_...`` of cuDNN, ``fmha_fwd_...``
    of composable kernel. In float32, whether tensor cores are used is not in the name.
    """
    if not _ATTENTION.search(low):
        return None
    query = _QUERY_TYPE.search(low)
    precision = _type_of(query.group(1)) if query else _narrowest(_types(low)) or _mangled_type(low)
    is_narrow = precision is not None and precision.byte_count <= 2
    return _matrix(Kind.ATTENTION, precision, tensor_cores=is_narrow or None)


_RECURRENT = re.compile(r"rnn_(?:block)?persist|persist_?rnn|(?:lstm|gru)_(?:fw|bw|persist)")


def _recurrent(low: str, _: str) -> KernelName | None:
    """Read cuDNN's persistent recurrent layers, ``RNN_blockPersist_fp_LSTM<float, ...>``; ``_HMMA``: tensor cores."""
    if not _RECURRENT.search(low):
        return None
    on_tensor_cores = "hmma" in low
    precision = Precision.FP16 if on_tensor_cores else _narrowest(_types(low))
    return _matrix(Kind.RECURRENT, precision, on_tensor_cores)


_NVJET = re.compile(r"^nvjet_(?:sm\d+_)?([a-z]+)_(tf32_)?")
_NVJET_TYPES = {"h": Precision.FP16, "t": Precision.BF16, "q": Precision.FP8, "b": Precision.INT8, "d": Precision.FP64}


def _nvjet(low: str, _: str) -> KernelName | None:
    """Read cuBLAS's kernels for Hopper and later: one letter for each matrix, the first factor first.

    The letters follow from recordings with known operators: ``hsh`` float16, ``tst`` bfloat16 (``aten::mm`` of
    ``c10::BFloat16``), ``qqtst`` float8 (``_scaled_mm``), ``sss_tf32`` TF32. Other letters stay unknown: ``o`` is a
    4-bit type.
    """
    found = _NVJET.match(low)
    if not found:
        return None
    precision = Precision.TF32 if found.group(2) else _NVJET_TYPES.get(found.group(1)[0])
    return _matrix(Kind.MATMUL, precision, tensor_cores=True)


_XMMA = re.compile(
    rf"xmma_(?P<what>[a-z0-9_]{{0,99}}?)_(?P<a>{_ATOM}|i32|s32)(?:{_ATOM}|i32|s32)_(?P<b>{_ATOM})(?:{_ATOM}|i32|s32)_"
)


def _xmma(low: str, _: str) -> KernelName | None:
    """Read ``sm80_xmma_gemm_f32f32_tf32f32_f32_...``: stored types, then the type that is multiplied and summed.

    For example ``bf16bf16_bf16f32_f32``, ``e4m3bf16_e4m3f32_f32``; ``f32f32_f32f32_f32`` runs on CUDA cores.
    """
    found = _XMMA.search(low)
    if not found:
        return None
    kind = Kind.CONVOLUTION if re.search(r"implicit|fprop|dgrad|wgrad|conv", found["what"]) else Kind.MATMUL
    precision = _type_of(found["b"])
    on_tensor_cores = "tensor8x8x4" in low if precision is Precision.FP64 else precision is not Precision.FP32
    return _matrix(kind, precision, on_tensor_cores)


_CUTLASS = re.compile(r"cutlass(?:3x)?_(?:(?:sm)?\d+[af]?_)?(?P<units>simt|[a-z_]*tensorop)_(?P<rest>\w+)")
_CUTLASS_OPERATION = re.compile(
    r"(?:^|_)(?P<letter>[a-z]?)(?P<shape>\d+(?:x\d+x\d+)?)?(?P<math>tf32|bf16|f16)?"
    r"(?P<what>(?:implicit_)?gemm|fprop|dgrad|wgrad|deconv|conv\dd)(?P<after>\w*)"
)
_LETTERS = {"h": Precision.FP16, "d": Precision.FP64, "i": Precision.INT8}


def _cutlass(low: str, _: str) -> KernelName | None:
    """Read CUTLASS's procedural names: https://docs.nvidia.com/cutlass, "Profiler" and "Functionality".

    ``cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_..._align8``: units, result, sum (``s``: float32), instruction,
    factors. An ``s1688`` without a type multiplies TF32. ``simt`` runs on CUDA cores.
    """
    found = _CUTLASS.search(low)
    operation = _CUTLASS_OPERATION.search(found["rest"]) if found else None
    if not found or not operation:
        return None
    kind = Kind.MATMUL if operation["what"] == "gemm" else Kind.CONVOLUTION
    factors = next(_types(re.split(r"_\d+x\d+", operation["after"])[0].replace("_", " ")), None)
    letter, on_tensor_cores = operation["letter"], found["units"] != "simt"
    if not on_tensor_cores:
        return _matrix(kind, factors or (_LETTERS | {"s": Precision.FP32}).get(letter), tensor_cores=False)
    precision = factors or (_type_of(operation["math"]) if operation["math"] else None) or _LETTERS.get(letter)
    if precision is None and letter == "s":
        precision = {"1688": Precision.TF32, "884": Precision.FP16}.get(operation["shape"])
    return _matrix(kind, precision, tensor_cores=True)


_CLASSIC = re.compile(
    r"(?:^|[_\s:])(?:(?P<arch>maxwell|kepler|pascal|volta|turing|ampere|ada|hopper|sm\d+)_)?(?:(?P<before>[a-z]+\d+)_)?"
    r"(?P<letter>gc|[shdczi])(?P<shape>\d+)?(?P<what>gemm|cudnn|dgrad|wgrad|fprop)(?:ex)?(?![a-z])"
    r"(?:_(?P<after>[a-z]+\d+))?"
)
_BY_MMA = {("s", "884"): Precision.FP16, ("s", "1688"): None}
"""Volta's ``s884`` multiplies float16. ``s1688`` is float16 on Turing and may be another type later."""


def _classic(low: str, _: str) -> KernelName | None:
    """Read cuBLAS's and cuDNN's own kernels: ``volta_sgemm_128x64_nn``, ``turing_fp16_s1688cudnn_fp16_...``.

    A letter as in BLAS (``s`` single, ``d`` double, ``h`` half, ``c`` and ``z`` complex, ``i`` integer), then the shape
    of the tensor cores' instruction, if they are used; ``ldg8`` loads eight elements at once. The same marks tell
    tensor cores in PyTorch's TensorBoard plugin (``tensor_core.py`` of pytorch/kineto) and in TensorFlow's profiler
    (``kernel_stats_utils.cc``).
    """
    found = _CLASSIC.search(low)
    if not found:
        return None
    kind = Kind.MATMUL if found["what"] == "gemm" else Kind.CONVOLUTION
    letter, shape = found["letter"], found["shape"]
    named = next((kind_ for each in (found["after"], found["before"]) if each and (kind_ := _type_of(each))), None)
    if letter == "gc":  # complex products of convolutions by Fourier transforms
        return _matrix(Kind.CONVOLUTION, Precision.FP32, tensor_cores=False)
    if letter in {"c", "z"}:
        return _matrix(kind, None, tensor_cores=False)
    precision = named or _LETTERS.get(letter)
    if precision is None and shape is None:
        precision = Precision.FP32
    elif precision is None:
        precision = Precision.FP16 if found["arch"] == "turing" else _BY_MMA.get((letter, shape))
    return _matrix(kind, precision, shape is not None)


_CUDNN = re.compile(
    r"(?:im|ex)plicit_convolve|precomputed_convolve|cudnn::(?:\w{1,60}::){0,9}(?:dgrad|wgrad|conv(?!ert)|winograd|im2col|fft)"
    r"|[dw]grad\w{0,200}_engine|^(?:void )?fft2d_[rc]2[rc]|first_layer_[a-z]+_kernel"
)


def _cudnn(low: str, _: str) -> KernelName | None:
    """Read cuDNN's templates: ``implicit_convolve_sgemm<float, float, ...>``, with transforms that they need."""
    if not _CUDNN.search(low):
        return None
    precision = _narrowest(_types(low.split("(", 1)[0]))
    return _matrix(Kind.CONVOLUTION, precision, False if precision is Precision.FP32 else None)


_GEMV = re.compile(r"gemv(?:2[tn]|x|nsp|n?t?s?p?)?(?:_kernel|::kernel|_)|gemmk1_kernel|gemmsn_|gemm_kernel1x1")


def _gemv(low: str, _: str) -> KernelName | None:
    """Read cuBLAS's products with vectors and very small matrices: ``gemv2T_kernel_val<int, int, float, ...>``."""
    if not _GEMV.search(low):
        return None
    return _matrix(Kind.MATMUL, _narrowest(_types(low)), tensor_cores=False)


_TENSILE = re.compile(r"Cijk_A\w{3}_B\w{3}_(?P<types>4xi8|I8|F8N?|B8N?|[A-Z])(?P<rest>\w*)")
_TENSILE_TYPES = {
    "4xi8": Precision.INT8,
    "I8": Precision.INT8,
    "F8": Precision.FP8,
    "F8N": Precision.FP8,
    "B8": Precision.FP8,
    "B8N": Precision.FP8,
    "H": Precision.FP16,
    "B": Precision.BF16,
    "S": Precision.FP32,
    "D": Precision.FP64,
}


def _tensile(_: str, name: str) -> KernelName | None:
    """Read rocBLAS's and hipBLASLt's kernels: ``Cijk_Ailk_Bljk_HHS_BH_...``: factors, result, sum.

    ``H`` float16, ``B`` bfloat16, ``S`` float32, ``D`` float64, ``F8`` and ``B8`` float8, ``I8`` int8, as Tensile's
    ``DataType.py`` abbreviates them. ``MI`` is the shape of the matrix cores' instruction; ``MX`` after ``S``: TF32.
    """
    if "Cijk_" not in name:
        return None
    found = _TENSILE.search(name)
    if not found:
        return PLAIN  # conversions and sums around products, such as Cijk_SB_GB
    precision = _TENSILE_TYPES.get(found["types"])
    if found["rest"].startswith(("_MX", "X")) and precision is Precision.FP32:
        precision = Precision.TF32
    return _matrix(Kind.MATMUL, precision, re.search(r"_MI\d", found["rest"]) is not None)


_MIOPEN = re.compile(
    r"miopen\w{0,200}conv|sp3asmconv|miopengcnasm\w{0,200}(?:conv|wino)|igemm_(?:fwd|bwd|wrw)_|naive_conv|gridwise_conv"
    r"|miopencvd|convolutionmeta|conv_?winograd|(?:im2d2col|col2im2d)"
)


def _miopen(low: str, _: str) -> KernelName | None:
    """Read MIOpen's convolutions: ``igemm_fwd_gtcx3_nhwc_bf16_...``, ``miopenSp3AsmConv_v21_1_3_gfx9_fp32_...``.

    ``gtcx`` runs on matrix cores (``src/solver/conv_asm_implicit_gemm_gtc*.cpp`` of ROCm/MIOpen). ``naive_conv`` names
    C types, and ``ushort`` is bfloat16 (``src/kernels/gpu_reference_kernel/naive_conv.cpp``).
    """
    if not _MIOPEN.search(low):
        return None
    precision = _narrowest(_types(re.sub(r"(?<![a-z])ushort(?![a-z])", "bf16", low)))
    on_matrix_cores = True if "gtcx" in low else False if precision is Precision.FP32 else None
    return _matrix(Kind.CONVOLUTION, precision, on_matrix_cores)


_CK = re.compile(
    r"\bck::|2ck16tensor_operation|7ck_tile|kernel_(?:grouped_|batched_)?(?:gemm|conv)_\w{0,200}(?:xdl|dl|wmma)"
)
_CK_MANGLED = re.compile(r"(?:I|E|_|S\d_)(?P<types>tt|ff|DF16_DF16_|DF16bDF16b)(?:[tf]|DF16_|DF16b){0,64}(?:L?NS|S)")
_CK_TYPES = {"tt": Precision.BF16, "ff": Precision.FP32, "DF16_DF16_": Precision.FP16, "DF16bDF16b": Precision.BF16}


def _composable_kernel(low: str, name: str) -> KernelName | None:
    """Read AMD's composable kernel: types are template arguments, where ``unsigned short`` is bfloat16.

    Mangled names have them as ``t``, ``f``, ``DF16_`` and ``DF16b`` (Itanium C++ ABI, "Builtin types").
    """
    if not _CK.search(low) or not re.search(r"gemm|conv(?!ert)", low):
        return None
    kind = Kind.CONVOLUTION if re.search(r"conv(?!ert)|bwd_weight|bwd_data", low) else Kind.MATMUL
    mangled = _CK_MANGLED.search(name) if name.startswith("_Z") else None
    precision: Precision | None
    if mangled:
        precision = _CK_TYPES[mangled["types"]]
    else:
        precision = _narrowest(_types(low.replace("unsigned short", "bf16"))) if not name.startswith("_Z") else None
    return _matrix(kind, precision, True if re.search(r"xdl|wmma", low) else None)


_MANGLED_TYPES = re.compile(r"(bfloat16|tfloat32|half|float_e[45]m[23])")


def _mangled_type(low: str) -> Precision | None:
    """Return the narrowest type in a mangled name, where words are not separated."""
    if not low.startswith("_z"):
        return None
    found = (_type_of(each.replace("tfloat32", "tf32")) for each in _MANGLED_TYPES.findall(low))
    return _narrowest(precision for precision in found if precision)


_WRAPPER = re.compile(r"cutlass\w{0,60}::(?:device_)?kernel\d?<|^_z")
"""Names whose first template argument, or mangled rest, is what runs."""

_PRODUCT = re.compile(
    r"gemm|matmul|(?<![a-z])(?:add|b|grouped_|scaled_)?mm(?![a-z])|marlin|fused_moe_kernel|implicitgemm"
)


def _product(low: str, _: str) -> KernelName | None:
    """Read other products by a word in their name: Triton's, DeepGEMM's, oneDNN's ``gemm_kernel``.

    A lone float32 is often that of the sums, so it tells nothing.
    """
    whole = low.replace("fbgemm_gpu", "").replace("fbgemm", "")
    head = whole if _WRAPPER.search(whole) else re.split(r"[<(]", whole, maxsplit=1)[0]
    if not _PRODUCT.search(head):
        return None
    kind = Kind.CONVOLUTION if re.search(r"implicitgemmconv|(?:fprop|dgrad|wgrad)", head) else Kind.MATMUL
    precision = _narrowest(_types(whole)) or _mangled_type(whole)
    if precision in {Precision.FP32, Precision.FP64}:
        precision = None
    return _matrix(kind, precision, True if precision is Precision.TF32 else None)


_PLAIN_LIBRARY = re.compile(
    r"^(?:void )?(?:at|cub|thrust|c10|cunn|at_cuda_detail|fbgemm_gpu)(?:::|_)|cudnn::(?:ops|bn)"
)
_PLAIN_WORD = re.compile(
    r"elementwise|softmax|(?:layer|rms|group|batch|instance)_?norm|rmsnorm|multi_tensor_apply|adamw?_|fusedadam"
    r"|radix_?sort|embedding|dropout|(?:max|avg|average)_?pool|upsampl|act_and_mul|rotary|index_?(?:select|put|copy|add)"
    r"|gather|scatter|cross_?entropy|memcpy|memset|transpose|catarray|direct_copy|reduce_kernel|spin_kernel|topk|cumsum"
    r"|permute|copy\w{0,200}_kernel|indices|index_kernel"
)
_FUSABLE = re.compile(
    r"at::native::|elementwise_kernel|softmax_warp|cunn_softmax|cudnn::bn_|(?:layer|batch|group)_norm"
)
"""Torch's own pointwise operations, reductions and normalisation. Embedding tables, sorts and kernels of other
libraries stay as they are."""

_MAY_MULTIPLY = re.compile(r"linear_|mlp|ffn|proj|moe_")
LONGEST_HEAD = 120
"""Characters of a mangled name, which has no end before its arguments, that say what the kernel does."""


def _plain(low: str, _: str) -> KernelName | None:
    """Read kernels that multiply no matrices: those of torch itself, of CUB and Thrust, and by common words."""
    head = re.split(r"[<(]", low, maxsplit=1)[0][:LONGEST_HEAD]
    if not _PLAIN_LIBRARY.search(low) and (not _PLAIN_WORD.search(head) or _MAY_MULTIPLY.search(head)):
        return None
    return replace(PLAIN, is_fusable=_FUSABLE.search(head) is not None)


_READERS: tuple[Callable[[str, str], KernelName | None], ...] = (
    _helper,
    _inductor,
    _nvjet,
    _tensile,
    _miopen,
    _xmma,
    _cutlass,
    _attention,
    _recurrent,
    _composable_kernel,
    _gemv,
    _cudnn,
    _classic,
    _product,
    _plain,
)
"""In order: the first that knows a name decides."""

_ALIGNED = re.compile(r"_align(\d+)|_ldg(8|16)_")


_ARCHITECTURES = {"volta": (7, 0), "turing": (7, 5), "ampere": (8, 0)}
_BUILT_FOR = re.compile(r"(?<![a-z0-9])(?:(volta|turing|ampere)_|sm_?(\d{2,3})(?!\d))")
"""The architecture that cuBLAS, cuDNN or CUTLASS built a kernel for: ``volta_sgemm_128x64_nn``, ``sm80_xmma_gemm``."""


def least_capability(names: Iterable[str]) -> tuple[int, int] | None:
    """Return the lowest compute capability that runs kernels of these names; None if they do not tell.

    Newer devices run kernels of older ones, too.
    """
    found = (match for name in names for match in _BUILT_FOR.finditer(name[:LONGEST_READ].lower()))
    return max((_ARCHITECTURES[one[1]] if one[1] else divmod(int(one[2]), 10) for one in found), default=None)


@lru_cache(maxsize=1 << 16)  # large recordings of generated kernels have 50,000
def read_kernel_name(name: str) -> KernelName:
    """Return what a kernel's name tells."""
    name = name[:LONGEST_READ]
    low = name.lower().replace("(anonymous namespace)::", "")
    found = next((told for reader in _READERS if (told := reader(low, name)) is not None), UNKNOWN)
    aligned = _ALIGNED.search(low) if found.tensor_cores else None
    return replace(found, alignment=int(aligned.group(1) or aligned.group(2))) if aligned else found
